"""
The events of a run, and how they reach their sinks.

Texts in an event are redacted before it is made, and none holds a prompt or an output. ``kind``, ``status``,
``outcome``, ``advice``, ``endpoint``, ``model`` and ``credential`` come from small closed sets and may label
a metric; ids and messages may not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Usage

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The first item is about to be taken."""

    items: int
    #: items that earlier tries have finished
    resumed: int = 0
    model: str = ""
    #: ``name@version``
    prompt: str = ""
    #: calls of earlier tries that were counted as such when those tries ended
    possible_double_paid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """The run goes on, whether anything happens or not; told every few seconds and once at the end."""

    #: what the next call waits for: the key of a limit, ``in_flight``, ``turn`` or ``throttle``; ``""`` when
    #: it waits for nothing
    waits_for: str = ""
    #: seconds so far during which calls waited, by what for
    waited_s: Mapping[str, float] = field(default_factory=dict)
    #: how full each limit is, from 0 to 1
    use: Mapping[str, float] = field(default_factory=dict)
    #: calls so far that left when their grant was older than the arrival slack
    late_arrivals: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """The service asked everybody on an account and model to wait."""

    delay_s: float
    endpoint: str = ""
    model: str = ""
    credential: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFailed:
    """A call brought no usable answer, or one that does not satisfy the schema."""

    #: a ``Failure.kind``, or the kind of a check's problem
    kind: str
    status: int | None
    #: the service's own error code
    code: str | None
    message: str
    #: name of the advice's class: what happens next
    advice: str
    item_id: str
    attempt: int
    endpoint: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDone:
    """An item has its row."""

    outcome: Outcome
    usage: Usage
    cost: Cost
    queue_ms: float
    call_ms: float
    endpoint: str
    model: str
    item_id: str = ""
    #: which salvage step made the reply readable
    salvage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A credential or an endpoint is not used any more, by anybody."""

    what: Literal["credential", "endpoint"]
    #: its id; never a key
    name: str
    reason: str
    #: seconds after which it is tried again, when it is
    for_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopened:
    """A credential or an endpoint that was parked answers again."""

    what: Literal["credential", "endpoint"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A person has fixed the route at an endpoint, or let the rules decide again."""

    #: name of the endpoint in the routes; None when the rules decide again
    route: str | None
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The service refuses a parameter; requests to this endpoint and model go without it from now on."""

    endpoint: str
    model: str
    drop: str
    rename_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLost:
    """The shared state cannot be reached; limits are not what they should be."""

    reason: str
    #: what is done about it, such as ``paused``
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBack:
    """The shared state is there again."""

    away_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """Nothing more is sent, and what was paid is stored. Every run ends with it, also one that fails."""

    state: Literal["complete", "stopped"]
    reason: str = ""
    possible_double_paid: int = 0


Event = (
    RunStarted
    | Pulse
    | Throttled
    | CallFailed
    | ItemDone
    | Parked
    | Reopened
    | Pinned
    | Rewritten
    | StateLost
    | StateBack
    | RunEnded
)


class Observer(Protocol):
    """A sink of events. It is called in the event loop and must not block."""

    def on(self, event: Event) -> None:
        """Take note of an event."""


class Fanout:
    """
    Hand each event to several sinks. A sink that fails is told of once and never hurts the run.

    :param observers: the sinks.
    """

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)
        self._failed: set[int] = set()

    def on(self, event: Event) -> None:
        """Hand ``event`` to every sink."""
        for place, observer in enumerate(self._observers):
            try:
                observer.on(event)
            except Exception as error:  # a sink is somebody's monitoring, and no reason to lose a batch
                if place not in self._failed:
                    self._failed.add(place)
                    self._tell(observer, event, error)

    @staticmethod
    def _tell(observer: Observer, event: Event, error: Exception) -> None:
        # Only the error's type: its text may hold what a sink was configured with.
        _log.warning(
            "%s failed on %s with %s; its further failures are not logged, and the run goes on",
            type(observer).__name__,
            type(event).__name__,
            type(error).__name__,
        )
