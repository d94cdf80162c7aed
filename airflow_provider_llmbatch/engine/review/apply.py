"""What a decision makes of a row."""

from __future__ import annotations

import json
from dataclasses import replace

from airflow_provider_llmbatch.engine.items import Json, Outcome, Result, RunRef
from airflow_provider_llmbatch.engine.review.decision import Wish

_OUTCOMES = {"edit": Outcome.EDITED, "accept": Outcome.ACCEPTED, "skip": Outcome.SKIPPED}


def decided(result: Result, wish: Wish, output: Json, run: RunRef, at: float) -> Result:
    """
    Return the row that takes the place of ``result``; a retry makes none, it is sent.

    What the model said stays in ``raw_output``, and in the row what it had used and cost.

    :param result: the row as the person saw it.
    :param output: what was edited or accepted, as the schema reads it; not looked at for the rest.
    :param run: the review task.
    :param at: Unix seconds of the decision.
    """
    outcome = _OUTCOMES[wish.kind]
    kept = output if outcome.is_good else None
    return replace(
        result,
        outcome=outcome,
        output=kept,
        raw_output=_said(result, kept),
        salvage=result.salvage if outcome is Outcome.ACCEPTED else None,
        error=None if outcome.is_good else result.error,
        run=run,
        started_at=at,
    )


def _said(result: Result, kept: Json) -> str | None:
    """Return what the model said, unless the new row's output says it."""
    if result.raw_output is not None or result.output is None or result.output == kept:
        return result.raw_output
    return result.output if isinstance(result.output, str) else json.dumps(result.output, ensure_ascii=False)
