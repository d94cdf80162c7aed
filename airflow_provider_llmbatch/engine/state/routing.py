"""
What people know and do about routes: how credentials and endpoints fare, and where calls go by their wish.

A pin fixes the route at one endpoint, for all workers, until it is taken away: runs whose table of routes has
that endpoint send everything there, whatever is seen of it. Runs without it are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_provider_llmbatch.engine.state.protocols import Closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How a credential or an endpoint fares, as all workers have seen it lately."""

    gate: str
    #: how it is parked; None when it is open
    closed: Closed | None = None
    #: the latest answer, in Unix seconds of the state's clock; None when none is known
    answered_at: float | None = None
    #: different items in a row that met a failure there since the last answer
    failed: int = 0
    #: whether the routes of a run that began within a day lead there: it can be pinned
    offered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The wish of a person that calls go to one endpoint."""

    gate: str
    by: str
    #: Unix seconds of the state's clock
    at: float


class Pins(Protocol):
    """Where calls go by the wish of people."""

    async def pins(self) -> Sequence[Pin]:
        """Return all pins, the latest first."""

    async def offer(self, gates: Sequence[str]) -> None:
        """Say which endpoints a run can choose from, so that people see them."""


class Routing(Pins, Protocol):
    """Everything that people may look at and change."""

    async def conditions(self) -> Sequence[Condition]:
        """Return every gate that was heard of within a day, by name."""

    async def forget(self, gate: str) -> None:
        """Forget all that was seen at a gate: answers, failures, how it is parked, how long calls took."""

    async def pin(self, gate: str, *, by: str) -> None:
        """Fix the route at an endpoint; whoever has pinned it before is forgotten."""

    async def unpin(self, gate: str) -> None:
        """Take a pin away; one that is not there is fine."""
