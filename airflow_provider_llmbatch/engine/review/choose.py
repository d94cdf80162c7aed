"""Which rows a person should see: those that failed, those that are uncertain, and a sample of the rest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_llmbatch.engine.expression import cel
from airflow_provider_llmbatch.engine.items import Outcome, Result
from airflow_provider_llmbatch.errors import ConfigurationError

#: What a condition can read, with an example of each.
FACTS: Mapping[str, Any] = {
    "output": {},
    "outcome": "ok",
    "attempts": 1,
    "finish_reason": "stop",
    "model": "m",
    "salvage": "",
    "tokens": 1,
    "latency_ms": 1.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is reviewed."""

    #: outcomes of which every item is
    outcomes: frozenset[Outcome]
    #: CEL over a usable row, such as ``output.confidence < 0.7``; None reviews no such row for it
    uncertain: str | None = None
    #: share of the usable rows that is looked at anyway, from 0 to 1
    sample: float = 0.0
    _program: Any = field(default=None, repr=False, compare=False)

    @property
    def further(self) -> Rules:
        """What is reviewed in further rounds: usable rows were looked at once."""
        return Rules(outcomes=self.outcomes)

    @property
    def needs_usable_rows(self) -> bool:
        """Whether usable rows have to be looked at at all."""
        return self.uncertain is not None or self.sample > 0.0

    def reason(self, result: Result, seed: str) -> str | None:
        """
        Return why a row is reviewed, None when it is not.

        :param seed: the same rows are sampled for the same seed, whichever try asks.
        """
        if result.outcome in self.outcomes:
            return "failed"
        if not result.outcome.is_good:
            return None
        if self._program is not None and self._is_uncertain(result):
            return "uncertain"
        return "sample" if _luck(seed, result.index) < self.sample else None

    def _is_uncertain(self, result: Result) -> bool:
        try:
            return self._program.execute(_facts(result)) is not False
        except (TypeError, ValueError, RuntimeError, LookupError):
            # A row that the condition cannot be applied to is the first that somebody should see.
            return True


def read_rules(outcomes: frozenset[Outcome], uncertain: str | None, sample: float) -> Rules:
    """
    Check rules.

    :param uncertain: see :attr:`Rules.uncertain`.
    :raises ConfigurationError: for a condition that is no CEL, or reads what is not known.
    """
    if uncertain is None:
        return Rules(outcomes=outcomes, sample=sample)
    try:
        program = cel().compile(uncertain)
    except ValueError as error:
        words = str(error).strip().splitlines()[0][:200]
        raise ConfigurationError(f"uncertain is no CEL expression, {uncertain!r}: {words}.") from None
    if unknown := sorted(set(program.variables()) - set(FACTS)):
        raise ConfigurationError(
            f"uncertain reads {unknown[0]!r}, which is not known; known are {', '.join(FACTS)}."
        )
    return Rules(outcomes=outcomes, uncertain=uncertain, sample=sample, _program=program)


def _facts(result: Result) -> dict[str, Any]:
    return {
        "output": result.output,
        "outcome": result.outcome.value,
        "attempts": result.attempts,
        "finish_reason": result.finish_reason or "",
        "model": result.served_model or "",
        "salvage": result.salvage or "",
        "tokens": result.usage.total,
        "latency_ms": result.call_ms,
    }


def _luck(seed: str, index: int) -> float:
    """Return a number from 0 to 1 that is always the same for an item."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{index}".encode()).digest()[:8], "big") / 2**64
