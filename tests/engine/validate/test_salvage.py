from __future__ import annotations

import json
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.validate.salvage import salvage

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
CONTAINERS = st.dictionaries(
    TEXT,
    st.none() | st.booleans() | st.integers() | TEXT | st.lists(TEXT | st.integers(), max_size=3),
    max_size=4,
)
#: words as models put them around JSON: anything that is no bracket, brace, fence or tag; what quotes, colons
#: and commas mean there stands in the table of replies
PROSE = st.text(string.ascii_letters + " .;!?'\n-", max_size=30)


@pytest.mark.parametrize(
    ("reply", "found", "step"),
    [
        ('```json\n{"label":"ok","score":0.4}\n```', '{"label":"ok","score":0.4}', "fence"),
        ('```\n{"label":"ok"}\n```', '{"label":"ok"}', "fence"),
        ('Here you go:\n```json\n{"label":"ok"}\n```\nAnything else?', '{"label":"ok"}', "fence"),
        ('Here you go: {"label":"ok"}', '{"label":"ok"}', "prose"),
        ('{"label":"ok"}\nI hope that helps.', '{"label":"ok"}', "prose"),
        ('```json\n{"code":"```py```"}\n```', '{"code":"```py```"}', "fence"),
        ("The list:\n[1, 2]\n", "[1, 2]", "prose"),
        ('\ufeff{"a":1}', '{"a":1}', "prose"),
    ],
)
def test_fences_and_prose_come_off_and_are_named(reply: str, found: str, step: str) -> None:
    """JSON in a markdown fence fails strict validation. P47"""
    salvaged = salvage(reply)
    assert salvaged is not None
    assert (salvaged.text, salvaged.step) == (found, step)


@pytest.mark.parametrize(
    ("reply", "found", "step"),
    [
        ('<think>maybe {"x":9}?</think>\n{"x":1}', '{"x":1}', "thought"),
        ('maybe {"x":9}?</think>\n\n{"x":1}', '{"x":1}', "thought"),
        ('<think>hm</think>\n```json\n{"x":1}\n```', '{"x":1}', "thought+fence"),
        ('<reasoning>hm</reasoning> So: {"x":1,}', '{"x":1}', "thought+prose+comma"),
        ('```json\n{"tag":"</think> {"}\n```', '{"tag":"</think> {"}', "fence"),
    ],
)
def test_the_answer_is_what_follows_the_thought(reply: str, found: str, step: str) -> None:
    """1 and not 9. P49"""
    salvaged = salvage(reply)
    assert salvaged is not None
    assert (salvaged.text, salvaged.step) == (found, step)


@pytest.mark.parametrize(
    "reply",
    [
        '{"note":"she said "go", then left","id": 12e4ab-7}',
        '{"subject":"Hi","text":"Dear Ann,I ho',
        "{'label': 'ok'}",
        '{"label": True}',
        '{"a": 1, "a": 2,}',
        '{"a": 1,, "b": 2}',
        '{"a": NaN}',
        '{"id": 57eee12}',
        "no JSON here",
        "",
        "42",
    ],
)
def test_what_would_need_an_opinion_is_left_to_a_re_ask(reply: str) -> None:
    """Repair cuts texts and turns ids into numbers. P51"""
    assert salvage(reply) is None


@pytest.mark.parametrize(
    "reply",
    [
        '{"x":1}\n{"x":2}',
        '{"x":1}\n{"x":1}',
        '```json\n{"x":1}\n```\nor\n```json\n{"x":2}\n```',
        'Either [1] or {"x":1}',
        'As in {this}: {"x":1}',
        '{"x":1}}',
        '<think>{"x":9}</think> or <think>{"x":8}</think> {"x":1}',
        '<think>never ends {"x":9}',
        '<think>a</think> b {"x":9} </think>',
    ],
)
def test_two_candidates_are_ambiguous(reply: str) -> None:
    assert salvage(reply) is None


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ('{"a": [1, 2,], "b": {"c": 3, }, }', '{"a": [1, 2], "b": {"c": 3 } }'),
        ('{"a": "x,]", "b": ",}",}', '{"a": "x,]", "b": ",}"}'),
        (r'He said "go": {"a": "quote \" ,] ", }', r'{"a": "quote \" ,] " }'),
    ],
)
def test_only_commas_outside_of_strings_are_dropped(reply: str, found: str) -> None:
    salvaged = salvage(reply)
    assert salvaged is not None
    assert salvaged.text == found
    assert salvaged.step.endswith("comma")


@given(CONTAINERS, PROSE, PROSE, st.sampled_from(["{}", "```json\n{}\n```", "<think>{}</think>\n{}"]))
def test_no_character_of_the_value_is_lost(
    value: dict[str, object], before: str, after: str, form: str
) -> None:
    inner = json.dumps(value, ensure_ascii=False)
    wrapped = form.replace("{}", inner) if "think" in form else before + form.replace("{}", inner) + after
    salvaged = salvage(wrapped)
    assert salvaged is not None
    assert salvaged.text == inner


@given(CONTAINERS, PROSE, st.data())
def test_a_reply_that_was_cut_is_never_salvaged(
    value: dict[str, object], before: str, data: st.DataObject
) -> None:
    """Not even when a complete object stands inside of the torn one. P43"""
    inner = json.dumps({"outer": value, "list": [value]})
    cut = data.draw(st.integers(min_value=0, max_value=len(inner) - 1))
    assert salvage(before + inner[:cut]) is None


@pytest.mark.parametrize(
    "hostile",
    [
        '{"a":' + '"' + r"\"" * 100_000,
        "{" * 100_000,
        "," * 100_000 + "{",
        "<think>" * 50_000,
        "```" * 50_000 + "{",
    ],
    ids=["quotes", "braces", "commas", "tags", "fences"],
)
def test_a_hostile_reply_takes_linear_time(hostile: str) -> None:
    started = time.process_time()
    assert salvage(hostile) is None
    assert time.process_time() - started < 1.0
