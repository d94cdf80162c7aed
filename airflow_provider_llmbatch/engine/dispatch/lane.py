"""One way a call can go: an endpoint and a credential, with limits, slots and gates of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_llmbatch.engine.dispatch.attempt import Attempts
from airflow_provider_llmbatch.engine.dispatch.limit.concurrency import Pace
from airflow_provider_llmbatch.engine.dispatch.limit.limiter import Limiter
from airflow_provider_llmbatch.engine.dispatch.slots import Slots
from airflow_provider_llmbatch.engine.exchange import Rewrite
from airflow_provider_llmbatch.engine.observe.latency import LatencyHistogram
from airflow_provider_llmbatch.engine.state.protocols import Closed, Gate, Scope

#: Different items that fail in a row before it is the endpoint's fault and not theirs.
OUTAGE = 3


@dataclass(slots=True, eq=False, kw_only=True)
class Lane:
    """One endpoint with one credential."""

    #: name of the endpoint in the routes
    route: str
    attempts: Attempts
    limiter: Limiter
    scope: Scope
    slots: Slots
    pace: Pace
    #: most slots
    most: int
    #: tokens that fit the model, if known
    window: int | None
    credential: Gate
    endpoint: Gate
    #: parameters that the service is known to refuse; shared by the lanes of one endpoint
    learnt: list[Rewrite]
    #: Unix seconds at which its key expires; None when it does not
    expires_at: float | None = None
    #: the gate that is parked, as far as is known here, and when it is tried again, on the process's clock
    closed: Closed | None = None
    closed_until: float = 0.0
    #: until when its limits have no room, as far as is known here, on the process's clock
    full_until: float = 0.0
    #: whether it has answered in this run
    has_worked: bool = False
    #: items that failed here in a row
    failed: set[int] = field(default_factory=set)
    #: how long calls took since the last beat
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)

    @property
    def name(self) -> str:
        """What people may see of the address."""
        return self.attempts.endpoint.name

    @property
    def in_outage(self) -> bool:
        """Whether so many items failed here in a row that it is not their fault."""
        return len(self.failed) >= OUTAGE

    @property
    def is_refused(self) -> bool:
        """Whether it is parked for its credential."""
        return self.closed is not None and self.closed.gate == self.credential.name

    def is_open(self, now: float) -> bool:
        """Whether a call may be sent, as far as is known here."""
        return self.closed_until <= now

    def has_room(self, now: float) -> bool:
        """Whether a call may be sent, and need not wait for a limit, as far as is known here."""
        return self.is_open(now) and self.full_until <= now

    def answered(self, granted_at: float) -> None:
        """Note that a call was answered."""
        self.has_worked = True
        self.failed.clear()
        for gate in self.scope.gates:
            self.limiter.answered(gate.name, granted_at)

    def took(self, seconds: float) -> None:
        """Count how long a call was open; one that never left is not counted."""
        if seconds > 0:
            self.latency.add(seconds * 1000)

    def has_failed(self, index: int, owner: str) -> None:
        """Note a failure that is not the item's own."""
        self.failed.add(index)
        for gate in self.scope.gates:
            self.limiter.failed(gate.name, f"{owner}#{index}")
