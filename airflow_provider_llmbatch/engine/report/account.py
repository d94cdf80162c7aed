"""The account of a batch: frozen values between merging manifests and showing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Usage
from airflow_provider_llmbatch.engine.summary import Estimate, Manifest, State
from airflow_provider_llmbatch.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A failed item, to see what the numbers are made of."""

    id: str
    outcome: Outcome
    message: str
    #: the beginning of what the model wrote; never more than that
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What the plan expected of the part that was dispatched."""

    items: int
    prompt_tokens: int
    output_tokens: int
    #: of the whole plan; None when only a part of it was dispatched
    estimate: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """How many calls took how long, over time."""

    #: Unix seconds at the left edge, and seconds of a column
    start: float
    step_s: float
    #: upper bounds of the rows in milliseconds, lowest first
    below_ms: tuple[float, ...]
    #: counts by column, then row
    counts: tuple[tuple[int, ...], ...]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HeatMap:
        """
        Read a map of latencies.

        :raises InputError: for a foreign document.
        """
        try:
            read = cls(
                start=float(data["start"]),
                step_s=float(data["step_s"]),
                below_ms=tuple(float(bound) for bound in data["below_ms"]),
                counts=tuple(tuple(int(count) for count in column) for column in data["counts"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"This is no map of latencies: {error!r}.") from error
        if any(len(column) != len(read.below_ms) for column in read.counts):
            raise InputError(
                "This is no map of latencies: a column has more or fewer rows than there are bounds."
            )
        return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One or more dispatches, added up. The counts add up to the items."""

    title: str
    state: State
    items: int
    counts: Mapping[Outcome, int]
    resumed: int
    usage: Usage
    cost: Cost
    saved_usd: Decimal
    possible_double_paid: int
    #: the manifests it was made of, by chunk
    parts: tuple[Manifest, ...]
    planned: Planned | None
    examples: tuple[Example, ...]
    heat: HeatMap | None
    #: what cannot be known from what was given, in whole sentences
    unknowns: tuple[str, ...]

    @property
    def good(self) -> int:
        """Items with a usable output."""
        return sum(count for outcome, count in self.counts.items() if outcome.is_good)

    @property
    def started_at(self) -> float:
        """Unix seconds of the first start; 0 when unknown."""
        return min((part.started_at for part in self.parts if part.started_at), default=0.0)

    @property
    def ended_at(self) -> float:
        """Unix seconds of the last end; 0 when unknown."""
        return max((part.ended_at for part in self.parts), default=0.0)

    def least_and_most(self, values: str, name: str) -> tuple[float, float] | None:
        """Return the range over the parts of ``latency_ms`` or ``limits``, None when no part has it."""
        found = [getattr(part, values)[name] for part in self.parts if name in getattr(part, values)]
        return (min(found), max(found)) if found else None

    def sum_of_limits(self, name: str) -> float:
        """Return the sum over the parts of one of their ``limits``."""
        return sum(part.limits.get(name, 0.0) for part in self.parts)
