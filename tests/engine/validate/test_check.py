from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from airflow_provider_llmbatch.engine.validate.check import MESSAGE_LENGTH, check
from airflow_provider_llmbatch.engine.validate.schema import output_schema
from tests.engine.validate.models import Aliased, Counts, Finding, Fragile, Node, Pets

FINDING = output_schema(Finding)
FINDING_DOCUMENT = output_schema(Finding.model_json_schema())
TEXT = output_schema(None)
ANYTHING = output_schema({})


class Score(BaseModel):
    score: float


def problem_of(schema: Any, text: str | None) -> str:
    checked = check(schema, text)
    assert checked.problem is not None
    assert checked.output is None
    assert checked.raw_output == text
    return f"{checked.problem.kind}: {checked.problem.message}"


def test_plain_text_is_the_output_as_it_stands() -> None:
    checked = check(TEXT, "  Dear Ann,\n{not json}\n")
    assert checked.output == "  Dear Ann,\n{not json}\n"
    assert (checked.raw_output, checked.salvage, checked.problem) == (None, None, None)


@pytest.mark.parametrize("schema", [TEXT, FINDING])
@pytest.mark.parametrize("text", [None, "", " \n"])
def test_no_text_is_a_problem(schema: Any, text: str | None) -> None:
    checked = check(schema, text)
    assert checked.problem is not None
    assert checked.problem.kind == "empty"


def test_half_a_character_in_plain_text_becomes_the_replacement_character() -> None:
    checked = check(TEXT, "torn \ud83d and whole \U0001f600")
    assert checked.output == "torn \ufffd and whole 😀"
    assert checked.salvage == "half_character"


def test_the_output_is_the_validated_value_in_json_form() -> None:
    text = '{"label": "ok", "score": 1, "seen": "2026-05-04", "price": "12.30", "quotes": []}'
    checked = check(FINDING, text)
    assert checked.output == {
        **{"label": "ok", "score": 1.0, "quotes": [], "best": None},
        **{"seen": "2026-05-04", "price": "12.30"},
    }
    assert json.loads(json.dumps(checked.output)) == checked.output


@pytest.mark.parametrize(
    ("schema", "text", "kept"),
    [
        (Score, '{"score": 0.5}', False),
        (Score, ' {"score":5e-1}\n', False),
        (Score, '{"score": 1}', True),
        (Score, '{"score": true}', True),
        (Score, '{"score": "0.5"}', True),
        (Score, '{"score": 0.5, "more": 1}', True),
        (Finding, '{"label": "ok"}', True),
        (Aliased, '{"pageNumber": 3}', False),
        (Aliased, '{"page_number": 3}', True),
    ],
)
def test_the_text_is_kept_when_it_says_something_else(schema: Any, text: str, kept: bool) -> None:
    checked = check(output_schema(schema), text)
    assert checked.problem is None
    assert checked.raw_output == (text if kept else None)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        *(("NaN", "json"), ("1e999", "json"), ("-Infinity", "json")),
        *(('"NaN"', "schema"), ('"1e999"', "schema"), ('"inf"', "schema"), ("1" + "0" * 400, "schema")),
    ],
)
def test_a_number_that_is_not_finite_never_gets_through(value: str, kind: str) -> None:
    """Not as a literal, and not as a text or an integer that a float field would turn into one. P53"""
    assert problem_of(output_schema(Score), f'{{"score": {value}}}').startswith(kind)


@pytest.mark.parametrize(
    ("reply", "step"),
    [
        ('```json\n{"label":"ok","score":0.4}\n```', "fence"),
        ('<think>maybe {"label":"bad"}?</think>\n{"label":"ok"}', "thought"),
        ('Here you go: {"label":"ok"}', "prose"),
    ],
)
def test_salvage_is_named_and_the_reply_kept(reply: str, step: str) -> None:
    """P47, P49"""
    checked = check(FINDING, reply)
    assert checked.output["label"] == "ok"
    assert checked.salvage == step
    assert checked.raw_output == reply


def test_salvaged_json_must_satisfy_the_schema_as_well() -> None:
    """P51"""
    checked = check(FINDING, 'Here: {"lable": "ok"}')
    assert checked.problem is not None
    assert (checked.problem.kind, checked.salvage) == ("schema", "prose")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text("ab ```{}[]<think>,"), st.lists))
def test_valid_json_is_never_altered(value: object) -> None:
    checked = check(ANYTHING, json.dumps(value))
    assert checked.output == value
    assert (checked.raw_output, checked.salvage) == (None, None)


@pytest.mark.parametrize(
    ("spec", "text", "output"),
    [
        (Finding, '{"label":"ok","score":null,"quotes":null,"best":null,"seen":null,"price":null}', None),
        (Counts, '{"words": {"a": 1}}', {"words": {"a": 1}}),
        (Pets, '{"pet":{"kind":"cat","lives":null,"name":null}}', {"kind": "cat", "lives": 9, "name": None}),
        (Pets, '{"pet":{"kind":"dog","lives":null}}', {"kind": "dog", "lives": None}),
        (Node, '{"value":1,"left":{"value":2,"left":null,"children":null},"children":null}', None),
    ],
)
def test_a_null_for_a_field_that_cannot_be_null_means_absent(spec: Any, text: str, output: Any) -> None:
    """The strict wire form has no other way to say it. P55"""
    checked = check(output_schema(spec), text)
    assert checked.problem is None
    assert output is None or output in (checked.output, checked.output.get("pet"))
    if spec is Finding:
        assert checked.output["score"] == 0.5
        assert checked.output["quotes"] == []
    if spec is Node:
        assert checked.output["left"] == {"value": 2, "left": None, "children": []}


def test_a_null_for_a_required_field_stays_a_fault() -> None:
    assert "label" in problem_of(FINDING, '{"label": null, "score": null}')
    assert "label" in problem_of(FINDING_DOCUMENT, '{"label": null, "score": null}')


def test_absent_nulls_are_left_out_for_a_json_schema_too() -> None:
    checked = check(FINDING_DOCUMENT, '{"label": "ok", "score": null, "seen": null}')
    assert checked.output == {"label": "ok", "seen": None}
    assert checked.raw_output == '{"label": "ok", "score": null, "seen": null}'


@pytest.mark.parametrize("schema", [FINDING, FINDING_DOCUMENT], ids=["pydantic", "document"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "label"),
        ('{"label": "SECRET"}', "label"),
        ('{"label": "ok", "quotes": [{"text": "SECRET", "page": 0}]}', "quotes.0.page"),
        ('{"label": "ok", "seen": "SECRET"}', "seen"),
        ("[1]", "$"),
        ('"SECRET"', "$"),
    ],
)
def test_a_fault_is_told_with_its_place_and_without_the_reply(schema: Any, text: str, words: str) -> None:
    told = problem_of(schema, text)
    assert told.startswith("schema: ")
    assert words in told
    assert "SECRET" not in told


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ("2026-05-04T10:00:00Z", True),
        ("2026-05-04t10:00:00.25+02:00", True),
        ("2026-05-04", False),
        ("2026-13-04T10:00:00Z", False),
    ],
)
def test_formats_that_are_not_on_the_wire_are_checked(value: str, good: bool) -> None:
    document = {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    assert (check(output_schema(document), json.dumps({"at": value})).problem is None) is good


def test_many_faults_make_a_short_message() -> None:
    quotes = [{"page": "x" * 50} for _ in range(500)]
    told = problem_of(FINDING, json.dumps({"label": "ok", "quotes": quotes}))
    assert told.endswith("; and more.")
    assert len(told) < MESSAGE_LENGTH + 20


@pytest.mark.parametrize(
    "text",
    [
        '{"value": "unknown"}',
        '{"value": []}',
        '{"value": "\\ud800"}',
        '{"value": ' + "[" * 5000 + "]" * 5000 + "}",
    ],
)
def test_a_bad_reply_is_a_value_whatever_the_users_validator_raises(text: str) -> None:
    assert check(output_schema(Fragile), text).problem is not None


def test_a_typical_reply_is_checked_in_a_fraction_of_a_millisecond() -> None:
    quotes = [{"text": "the quick brown fox jumps over the lazy dog", "page": page} for page in (1, 2, 3)]
    text = json.dumps(
        {"label": "ok", "score": 0.75, "quotes": quotes, "best": quotes[0], "seen": "2026-05-04"}
    )
    fastest = 1.0
    for _ in range(200):
        started = time.perf_counter()
        check(FINDING, text)
        fastest = min(fastest, time.perf_counter() - started)
    assert fastest < 200e-6
