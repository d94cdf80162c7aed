"""
Rows of Airflow's own ``common.ai`` batches, and ours as such rows.

It knows six statuses, we know thirteen outcomes: both ways something is lost. Reading, a reply that was cut
at its cap is told by its ``finish_reason``; whether an ``error`` was the request's fault is not told, so the
item counts as one that another try may answer. Writing, what a person decided looks like the model's work.

==================  ====================  ==========================================================
status              read as               written for
==================  ====================  ==========================================================
``success``         ``ok``                ``ok``, ``edited``, ``accepted``
``invalid_output``  ``invalid_output``    ``invalid_output``, ``truncated``
``error``           ``exhausted``         ``refused``, ``content_filtered``, ``too_long``,
                                          ``bad_request``, ``unrendered``, ``exhausted``
``expired``         ``unsent``            nothing
``cancelled``       ``unsent``            ``skipped``
``missing``         ``unsent``            ``unsent``
==================  ====================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_llmbatch.engine.items import ItemError, Outcome, Result, Usage

#: How an item of each status counts here.
OUTCOMES: Mapping[str, Outcome] = {
    "success": Outcome.OK,
    "invalid_output": Outcome.INVALID_OUTPUT,
    "error": Outcome.EXHAUSTED,
    "expired": Outcome.UNSENT,
    "cancelled": Outcome.UNSENT,
    "missing": Outcome.UNSENT,
}
#: How an item of each outcome counts there.
STATUSES: Mapping[Outcome, str] = {
    Outcome.OK: "success",
    Outcome.EDITED: "success",
    Outcome.ACCEPTED: "success",
    Outcome.INVALID_OUTPUT: "invalid_output",
    Outcome.TRUNCATED: "invalid_output",
    Outcome.REFUSED: "error",
    Outcome.CONTENT_FILTERED: "error",
    Outcome.TOO_LONG: "error",
    Outcome.BAD_REQUEST: "error",
    Outcome.UNRENDERED: "error",
    Outcome.EXHAUSTED: "error",
    Outcome.UNSENT: "missing",
    Outcome.SKIPPED: "cancelled",
}

_CUT = ("length", "max_tokens")


def from_common_ai(row: Mapping[str, Any]) -> Result:
    """
    Read a row of ``common.ai``.

    :raises KeyError: when a field is missing.
    :raises ValueError: for an unknown status, or an index that is none.
    """
    status, index, error, usage = row["status"], row["index"], row["error"], row["usage"] or {}
    if status not in OUTCOMES:
        raise ValueError(f"unknown status {status!r}")
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise ValueError(f"the index is {index!r}")
    outcome = OUTCOMES[status]
    if row["finish_reason"] in _CUT and outcome in (Outcome.OK, Outcome.INVALID_OUTPUT):
        outcome = Outcome.TRUNCATED
    return Result(
        index=index,
        id=str(row["custom_id"]),
        outcome=outcome,
        output=row["output"] if outcome is Outcome.OK else None,
        raw_output=row["raw_output"],
        error=_error(outcome, status, error),
        served_model=row["model"],
        attempts=0 if outcome is Outcome.UNSENT else 1,
        usage=Usage(prompt=usage.get("input_tokens") or 0, completion=usage.get("output_tokens") or 0),
        finish_reason=row["finish_reason"],
    )


def to_common_ai(result: Result) -> dict[str, Any]:
    """Return a result as a row of ``common.ai``."""
    error, usage = result.error, result.usage
    return {
        "custom_id": result.id,
        "index": result.index,
        "status": STATUSES[result.outcome],
        "output": result.output if result.outcome.is_good else None,
        "raw_output": None if result.outcome.is_good else result.raw_output,
        "error": error
        and {
            "type": error.kind,
            "message": error.message,
            "provider_code": error.code or (str(error.status) if error.status is not None else None),
            "stage": "output_validation" if result.outcome is Outcome.INVALID_OUTPUT else "provider",
        },
        "model": result.served_model,
        "usage": {"input_tokens": usage.prompt, "output_tokens": usage.completion} if usage.total else None,
        "finish_reason": result.finish_reason,
    }


def _error(outcome: Outcome, status: str, error: Mapping[str, Any] | None) -> ItemError | None:
    if outcome is Outcome.OK:
        return None
    told = error or {}
    message = told.get("message") or f"common.ai reports the item as {status}."
    return ItemError(
        kind=str(told.get("type") or status), message=str(message), code=told.get("provider_code")
    )
