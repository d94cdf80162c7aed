from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.validate.parse import MAX_DEPTH, NotJson, parse_strict

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_every_json_value_reads_back_as_it_was(value: object, ascii_only: bool) -> None:
    assert parse_strict(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(st.text(max_size=40))
def test_no_text_makes_the_parser_crash(text: str) -> None:
    try:
        parse_strict(text)
    except NotJson:
        return
    json.loads(text)


@pytest.mark.parametrize(
    "text",
    ['{"score": NaN}', '{"score": 1e999}', '{"score": -Infinity}', "[Infinity]", "-1e400", '[1, {"a": NaN}]'],
)
def test_numbers_that_are_not_finite_are_invalid(text: str) -> None:
    """Python's JSON lets them pass. P53"""
    with pytest.raises(NotJson):
        parse_strict(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "b": 2, "a": 1}', "'a' occurs twice"),
        ('[{"x": {"": 1, "": 2}}]', "'' occurs twice"),
        ('{"a": 1} {"a": 1}', "more text follows the JSON, from character 8"),
        ("{} x", "more text"),
        ("\ufeff{}", "BOM|Expecting value"),
        ("\u00a0{}", "Expecting value"),
        ('{"a": 1,}', "line 1"),
        ("{'a': 1}", "line 1"),
        ('{"a":\n"b\nc"}', "Invalid control character at line 2, column 3"),
        ("", "Expecting value at line 1, column 1"),
        ('{"a": "\ud83d"}', "half of a character"),
        (r'{"a": "\ud83d"}', "half of a character"),
        (r'{"\uDC00": 1}', "half of a character"),
        ("1" * 5000, "more digits than can be read"),
    ],
)
def test_what_the_standard_forbids_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(NotJson, match=why):
        parse_strict(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" \r\n\t{} \n", {}),
        ("123456789012345678901234567890123456789", 123456789012345678901234567890123456789),
        ("-0.0", -0.0),
        ("1e-999", 0.0),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\\ud83d"', "\\ud83d"),
        ("null", None),
    ],
)
def test_unusual_but_valid_json_is_read(text: str, value: object) -> None:
    assert parse_strict(text) == value


@pytest.mark.parametrize("levels", [MAX_DEPTH + 2, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")], ids=["array", "object"])
def test_deep_nesting_is_invalid_and_no_crash(levels: int, opening: str, closing: str) -> None:
    with pytest.raises(NotJson, match="nested deeper than 128"):
        parse_strict(opening * levels + "1" + closing * levels)


def test_wide_and_shallow_json_is_not_taken_for_deep() -> None:
    assert parse_strict(json.dumps([[]] * 1000)) == [[]] * 1000
    assert parse_strict('["' + "[{" * 500 + '"]') == ["[{" * 500]
    assert not math.isinf(parse_strict("1e308"))
