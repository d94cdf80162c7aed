"""
Which of several plans a model would take, where somebody wants to ask one; off unless asked for.

It sees the schema, how many records have which modalities, and the plans, of which each works on the device:
no record, no name, no path. Its answer is the number of a plan. Whatever else comes, or nothing, the plan is
the one that is taken without it. No gain in speed is claimed. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.schema import Schema

#: Takes the question, as JSON values, and returns the answer, likewise.
Ask = Callable[[Mapping[str, Any]], Any]

#: What an answer is.
ANSWER: Mapping[str, Any] = {
    "title": "choice",
    "type": "object",
    "properties": {"plan": {"type": "integer", "minimum": 0}},
    "required": ["plan"],
    "additionalProperties": False,
}
#: How a model is asked; the variable is the question as JSON.
PROMPT: Mapping[str, str] = {
    "system": (
        "You choose how a run that encodes volumes, image patches and texts uses its device. All plans work. "
        "Take the one that you expect to be fastest for these records; when in doubt take plan 0. Answer "
        "with the number of the plan."
    ),
    "user": "{{ question }}",
}
_SHOWN = ("device", "dtypes", "channels_last", "arenas", "streams", "threads", "decoders", "batch", "reason")


class AskingError(Exception):
    """Asking failed; says how, in a word that quotes nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What came of asking."""

    #: number of the plan that is taken; 0 is the one that is taken without asking
    index: int
    #: how many there were
    of: int
    #: why the answer was not followed; None: it was
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the choice as JSON values."""
        return {"index": self.index, "of": self.of, "problem": self.problem}


def question(plans: Sequence[Plan], schema: Schema, patterns: Mapping[str, int]) -> dict[str, Any]:
    """
    Return all that the adviser is told.

    :param patterns: how many records have which modalities, as bits in the schema's order.
    """
    modalities = [
        {"kind": spec.kind, "type": spec.dtype, "shape": list(spec.shape), "ragged": spec.is_ragged}
        for spec in schema
    ]
    shown = [{name: plan.to_json()[name] for name in _SHOWN} for plan in plans]
    return {
        "modalities": modalities,
        "records_by_presence": dict(sorted(patterns.items())),
        "plans": [{"plan": number, **each} for number, each in enumerate(shown)],
    }


def choose(plans: Sequence[Plan], schema: Schema, patterns: Mapping[str, int], ask: Ask) -> Choice:
    """
    Ask for a plan, and return what came of it; never raises for what the adviser does.

    :param plans: the first one is taken when the answer is none of them.
    """
    if len(plans) == 1:
        return Choice(index=0, of=1, problem="there is one plan only, so nobody was asked")
    try:
        answer = ask(question(plans, schema, patterns))
    except Exception as error:
        # The words of a foreign error can quote a service; its type cannot.
        how = str(error) if isinstance(error, AskingError) else type(error).__name__
        return Choice(index=0, of=len(plans), problem=f"asking failed ({how})")
    index = answer.get("plan") if isinstance(answer, Mapping) else None
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(plans):
        return Choice(index=0, of=len(plans), problem="the answer is no number of a plan")
    return Choice(index=index, of=len(plans))
