"""The result row: one strict JSON object per line, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from airflow_provider_llmbatch.engine.items import (
    SCHEMA_VERSION,
    Cost,
    ItemError,
    Outcome,
    PromptRef,
    Result,
    RunRef,
    Usage,
)

# Made once: json.dumps with options would build a new encoder for every row.
_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_escaped = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode


def encode(result: Result) -> bytes:
    """
    Return the row as one line, newline included.

    :raises ValueError: for values that strict JSON cannot hold (NaN, infinity).
    """
    return dump_line(to_row(result))


def dump_line(row: Mapping[str, Any]) -> bytes:
    """Return any JSON object as one line of strict JSON in UTF-8."""
    try:
        return _text(row).encode() + b"\n"
    except UnicodeEncodeError:
        # Half a surrogate pair has no UTF-8 form; as an escape it survives.
        return _escaped(row).encode() + b"\n"


def to_row(result: Result) -> dict[str, Any]:
    """Return the row's fields, in the order people read them."""
    row: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "index": result.index,
        "id": result.id,
        "outcome": result.outcome.value,
        "round": result.round,
        "output": result.output,
    }
    if result.raw_output is not None:
        row["raw_output"] = result.raw_output
    if result.salvage is not None:
        row["salvage"] = result.salvage
    error = result.error
    row["error"] = error and {
        "class": error.kind,
        "status": error.status,
        "code": error.code,
        "message": error.message,
    }
    cost, prompt = result.cost, result.prompt
    row.update(
        served_model=result.served_model,
        endpoint=result.endpoint,
        credential=result.credential,
        request_id=result.request_id,
        prompt=prompt and {"name": prompt.name, "version": prompt.version, "sha": prompt.sha},
        variant=result.variant,
        attempts=result.attempts,
        usage=usage_row(result.usage),
        cost={"usd": format(cost.usd, "f"), "unpriced": cost.unpriced},
        **({} if result.saved_usd is None else {"reused": {"saved_usd": format(result.saved_usd, "f")}}),
        latency_ms={"queue": round(result.queue_ms, 1), "call": round(result.call_ms, 1)},
        finish_reason=result.finish_reason,
        started_at=_iso(result.started_at),
        run=_run_row(result.run),
        metadata=result.metadata,
    )
    return row


def from_row(row: Mapping[str, Any]) -> Result:
    """
    Read a row back.

    :raises KeyError: when a field is missing.
    :raises ValueError: for an unknown outcome.
    """
    error, prompt, run = row["error"], row["prompt"], row["run"]
    return Result(
        index=row["index"],
        id=row["id"],
        outcome=Outcome(row["outcome"]),
        round=row["round"],
        output=row["output"],
        raw_output=row.get("raw_output"),
        salvage=row.get("salvage"),
        error=error
        and ItemError(
            kind=error["class"], message=error["message"], status=error["status"], code=error["code"]
        ),
        served_model=row["served_model"],
        endpoint=row["endpoint"],
        credential=row["credential"],
        request_id=row["request_id"],
        prompt=prompt and PromptRef(**prompt),
        variant=row["variant"],
        attempts=row["attempts"],
        usage=Usage(**row["usage"]),
        cost=Cost(usd=Decimal(row["cost"]["usd"]), unpriced=row["cost"]["unpriced"]),
        saved_usd=Decimal(row["reused"]["saved_usd"]) if "reused" in row else None,
        queue_ms=row["latency_ms"]["queue"],
        call_ms=row["latency_ms"]["call"],
        finish_reason=row["finish_reason"],
        started_at=datetime.fromisoformat(row["started_at"]).timestamp(),
        run=RunRef(
            dag=run["dag"],
            run=run["run"],
            task=run["task"],
            map_index=run["map_index"],
            try_number=run["try"],
        ),
        metadata=row["metadata"],
    )


def usage_row(usage: Usage) -> dict[str, Any]:
    """Return usage as JSON values."""
    return {
        "prompt": usage.prompt,
        "cached": usage.cached,
        "completion": usage.completion,
        "reasoning": usage.reasoning,
        "estimated": usage.estimated,
    }


def _run_row(run: RunRef) -> dict[str, Any]:
    return {
        "dag": run.dag,
        "run": run.run,
        "task": run.task,
        "map_index": run.map_index,
        "try": run.try_number,
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
