from __future__ import annotations

import json
import re
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import ItemError, Outcome, Result, Usage
from airflow_provider_llmbatch.engine.results import foreign, rows


def foreign_row(**fields: Any) -> dict[str, Any]:
    """Return a row as ``common.ai`` lands it."""
    return {
        **{"custom_id": "0123456789abcdef-4", "index": 4, "status": "success", "output": {"x": 1}},
        **{"raw_output": None, "error": None, "model": "gpt-x", "finish_reason": "stop"},
        **{"usage": {"input_tokens": 10, "output_tokens": 3}, **fields},
    }


def test_every_outcome_has_a_status_and_every_status_an_outcome():
    assert set(foreign.STATUSES) == set(Outcome)
    assert set(foreign.STATUSES.values()) <= set(foreign.OUTCOMES)
    assert len(foreign.OUTCOMES) == 6


@pytest.mark.parametrize(("status", "outcome"), foreign.OUTCOMES.items())
def test_the_table_in_the_documentation_is_the_table_in_the_code(status, outcome):
    written = {o.value for o, s in foreign.STATUSES.items() if s == status}
    table = (foreign.__doc__ or "").split("===\n")[2]
    row = re.search(rf"^``{status}``(.*?)(?=^``|^==)", table, re.DOTALL | re.MULTILINE)
    assert row is not None
    first, *others = re.findall(r"``(\w+)``", row[1])
    assert (first, set(others)) == (outcome, written)


def test_a_good_row_is_read():
    found = foreign.from_common_ai(foreign_row())
    assert found == Result(
        index=4,
        id="0123456789abcdef-4",
        outcome=Outcome.OK,
        output={"x": 1},
        served_model="gpt-x",
        attempts=1,
        usage=Usage(prompt=10, completion=3),
        finish_reason="stop",
    )
    assert json.loads(rows.encode(found))["outcome"] == "ok"


@pytest.mark.parametrize("status", ["success", "invalid_output"])
def test_a_reply_that_was_cut_is_never_ok(status):
    found = foreign.from_common_ai(foreign_row(status=status, finish_reason="length", raw_output="{"))
    assert (found.outcome, found.output, found.raw_output) == (Outcome.TRUNCATED, None, "{")


def test_an_error_keeps_its_words_and_its_code():
    error = {
        "type": "provider_error",
        "message": "no",
        "provider_code": "invalid_prompt",
        "stage": "provider",
    }
    found = foreign.from_common_ai(foreign_row(status="error", output=None, error=error, usage=None))
    assert found.error == ItemError(kind="provider_error", message="no", code="invalid_prompt")
    assert (found.outcome, found.usage) == (Outcome.EXHAUSTED, Usage())


def test_a_missing_row_says_why_there_is_nothing():
    empty = {"output": None, "model": None, "usage": None, "finish_reason": None}
    found = foreign.from_common_ai(foreign_row(status="missing", **empty))
    assert found.error is not None
    assert (found.outcome, found.attempts, found.error.kind) == (Outcome.UNSENT, 0, "missing")


@pytest.mark.parametrize(
    "broken", [{"status": "weird"}, {"index": None}, {"index": -1}, {"index": True}, {"usage": "none"}]
)
def test_what_is_no_such_row_is_refused(broken):
    with pytest.raises((ValueError, AttributeError)):
        foreign.from_common_ai(foreign_row(**broken))


def test_a_row_goes_there_and_back():
    row = foreign_row()
    assert foreign.to_common_ai(foreign.from_common_ai(row)) == row
    error = ItemError(kind="schema", message="no")
    ours = Result(index=1, id="a", outcome=Outcome.INVALID_OUTPUT, raw_output="x", error=error, attempts=1)
    assert foreign.from_common_ai(foreign.to_common_ai(ours)) == ours
