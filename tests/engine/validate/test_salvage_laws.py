"""The laws of salvage, tried on any text: what is accepted is whole, unaltered and the only candidate."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from airflow_provider_llmbatch.engine.validate.check import check
from airflow_provider_llmbatch.engine.validate.parse import NotJson, parse_strict
from airflow_provider_llmbatch.engine.validate.salvage import Salvaged, salvage
from airflow_provider_llmbatch.engine.validate.schema import output_schema

CORPUS = [
    json.loads(line)
    for line in (Path(__file__).parent / "salvage_corpus.jsonl").read_text(encoding="utf-8").split("\n")
    if line
]
OBJECT_OR_LIST = output_schema({"type": ["object", "array"]})

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["```", "</think>", "<think>", "{", "}", "[1,]", ",}", "\n", "\t", "\\", '"', "//", "NaN", "'", ",", ":"]
)
CONTAINERS = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
).map(lambda value: value if isinstance(value, dict | list) else [value])
PIECES = st.sampled_from(
    [
        "{", "}", "[", "]", '"', ",", ":", "\\", "\n", "\t", "'", "`", "```", "```json\n", "<think>",
        "</think>", '"a"', '{"a":1}', "[1]", "1", "true", "True", "NaN", "// x", "“", "：", " ", "x",
        "Here: ", '":', '",',
    ]
)  # fmt: skip
#: a document with some of its characters taken out, and with pieces put in
DAMAGED = st.builds(
    lambda value, indent, cuts, puts: _damaged(
        json.dumps(value, indent=indent, ensure_ascii=False), cuts, puts
    ),
    CONTAINERS,
    st.sampled_from([None, 1]),
    st.lists(st.integers(0, 200), max_size=2),
    st.lists(st.tuples(st.integers(0, 200), PIECES), max_size=3),
)
ANY_TEXT = DAMAGED | st.lists(PIECES | TEXTS, max_size=12).map("".join)
TIMES = int(os.environ.get("LLMBATCH_FUZZ", "1"))


class Label(BaseModel):
    label: str
    score: float


LABEL = output_schema(Label)
FIELDS = st.sampled_from(
    ['"label":"ok"', '"score":1', '"score":"high"', '"score":NaN', '"label":null', '"x":1', ""]
)


def _damaged(text: str, cuts: list[int], puts: list[tuple[int, str]]) -> str:
    for cut in cuts:
        spot = cut % (len(text) + 1)
        text = text[:spot] + text[spot + 1 :]
    for put, piece in puts:
        spot = put % (len(text) + 1)
        text = text[:spot] + piece + text[spot:]
    return text


def bare(text: str) -> str:
    """Return a text without what salvage may take from it, and with breaks as JSON writes them."""
    text = text.replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t")
    return re.sub(r"(?:\\[nrt]|[,\s])+", "", text)


def is_lossless(text: str, salvaged: Salvaged) -> bool:
    """Whether it is JSON that stands in the source but for commas and breaks, and is alone there."""
    assert isinstance(parse_strict(salvaged.text), dict | list)
    assert bare(salvaged.text) in bare(text)
    if "thought" in salvaged.step:
        return True
    before, _, after = bare(text).partition(bare(salvaged.text))
    return not re.search(r"[][{}]", before + after)


@pytest.mark.parametrize("row", CORPUS, ids=[f"{n}-{row['kind']}" for n, row in enumerate(CORPUS, 1)])
def test_each_malformed_reply_has_its_right_answer(row: dict[str, Any]):
    """P47, P49, P51, P53."""
    checked = check(OBJECT_OR_LIST, row["reply"])
    if "problem" in row:
        assert checked.problem is not None
        assert checked.problem.kind == row["problem"]
        return
    assert checked.problem is None
    # As text: 1, 1.0 and true are equal in Python, and not in JSON.
    assert json.dumps(checked.output) == json.dumps(row["value"])
    assert checked.salvage == row["step"]
    assert (checked.raw_output is None) == (row["step"] is None)


def test_the_corpus_is_large_and_has_no_reply_twice():
    assert len(CORPUS) >= 300
    assert len({row["reply"] for row in CORPUS}) == len(CORPUS)


@settings(max_examples=1200 * TIMES, deadline=None, suppress_health_check=list(HealthCheck))
@given(ANY_TEXT)
def test_any_text_is_valid_and_unaltered_or_salvaged_without_loss_or_left_to_a_re_ask(text: str):
    """P51."""
    checked = check(OBJECT_OR_LIST, text)
    try:
        value = parse_strict(text)
    except NotJson:
        salvaged = salvage(text)
        assert (checked.problem is None) == (salvaged is not None)
        assert salvaged is None or is_lossless(text, salvaged)
        return
    if isinstance(value, dict | list):
        assert (checked.output, checked.salvage, checked.raw_output) == (value, None, None)
    else:
        assert checked.problem is not None


@given(
    CONTAINERS, st.data(), st.sampled_from(["", "Here: ", "```json\n", "<think>hm</think>"]), st.booleans()
)
@settings(max_examples=300, deadline=None)
def test_a_reply_that_was_cut_is_never_accepted(value: Any, data: st.DataObject, before: str, breaks: bool):
    """P43."""
    whole = json.dumps({"outer": value, "list": [value]}, ensure_ascii=False)
    if breaks:
        whole = whole.replace(r"\n", "\n").replace("}", ",}")
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert check(OBJECT_OR_LIST, before + whole[:cut]).problem is not None


@given(CONTAINERS, CONTAINERS, st.sampled_from(["", "\n", " or ", "```\n```json\n", ", ", "</s>"]))
def test_two_candidates_are_none(first: Any, second: Any, between: str):
    assert salvage(f"{json.dumps(first)}{between}{json.dumps(second)}") is None


@given(
    st.lists(FIELDS, max_size=4), st.sampled_from(["{%s}", "Here: {%s}", "```json\n{%s,}\n```", "{%s} ok"])
)
def test_what_is_accepted_satisfies_the_schema(fields: list[str], form: str):
    """P47, P53."""
    checked = check(LABEL, form % ",".join(fields))
    if checked.problem is None:
        assert Label.model_validate(checked.output, strict=True)
        assert json.dumps(checked.output, allow_nan=False)
