from __future__ import annotations

import json
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.items import (
    Cost,
    ItemError,
    Outcome,
    PromptRef,
    Result,
    RunRef,
    Usage,
)
from airflow_provider_llmbatch.engine.results import rows
from tests.engine.results.made import result

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)  # half surrogate pairs included
SMALL = st.integers(0, 10**9)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
TENTHS = st.integers(0, 10**7).map(lambda n: n / 10)
MILLISECONDS = st.integers(0, 4 * 10**12).map(lambda n: n / 1000)
USD = st.decimals(0, 10**6, allow_nan=False, places=9)

RESULTS = st.builds(
    Result,
    index=SMALL,
    id=TEXT,
    outcome=st.sampled_from(Outcome),
    output=JSON,
    raw_output=st.none() | TEXT,
    salvage=st.none() | TEXT,
    error=st.none()
    | st.builds(
        ItemError, kind=TEXT, message=TEXT, status=st.none() | st.integers(100, 599), code=st.none() | TEXT
    ),
    served_model=st.none() | TEXT,
    endpoint=st.none() | TEXT,
    credential=st.none() | TEXT,
    request_id=st.none() | TEXT,
    prompt=st.none() | st.builds(PromptRef, name=TEXT, version=TEXT, sha=TEXT),
    variant=st.none() | TEXT,
    attempts=SMALL,
    usage=st.builds(
        Usage, prompt=SMALL, cached=SMALL, completion=SMALL, reasoning=SMALL, estimated=st.booleans()
    ),
    cost=st.builds(Cost, usd=USD, unpriced=st.booleans()),
    queue_ms=TENTHS,
    call_ms=TENTHS,
    finish_reason=st.none() | TEXT,
    started_at=MILLISECONDS,
    run=st.builds(RunRef, dag=TEXT, run=TEXT, task=TEXT, map_index=st.integers(-1, 10**6), try_number=SMALL),
    round=st.integers(0, 63),
    metadata=JSON,
)


@given(RESULTS)
def test_a_row_comes_back_as_it_was_and_fills_one_line(before: Result):
    line = rows.encode(before)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert rows.from_row(json.loads(line)) == before


def test_line_breaks_of_every_kind_stay_inside_the_line():
    line = rows.encode(result(0, raw_output="a\nb\r\nc\u2028d\x85e\x1ff"))
    assert len(line.splitlines()) == 1
    assert rows.from_row(json.loads(line)).raw_output == "a\nb\r\nc\u2028d\x85e\x1ff"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_strict_json_cannot_hold_is_refused(value: float):
    with pytest.raises(ValueError, match="Out of range"):
        rows.encode(result(0, output={"score": value}))


def test_money_keeps_every_digit_and_never_turns_into_an_exponent():
    line = rows.encode(result(0, cost=Cost(usd=Decimal("0.000000001"))))
    assert b'"usd":"0.000000001"' in line


def test_a_row_with_an_unknown_outcome_is_no_row():
    row = json.loads(rows.encode(result(0)))
    with pytest.raises(ValueError, match="guessed"):
        rows.from_row({**row, "outcome": "guessed"})
