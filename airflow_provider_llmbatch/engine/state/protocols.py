"""
What the engine asks of shared state: small roles, each with one implementation per technology.

All amounts are integers: requests, tokens, micro-dollars. All times are Unix seconds of the *state's*
clock, so that no two processes compare their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol

Unit = Literal["requests", "tokens", "micro_usd"]
Counts = Literal["reserved", "used"]

_PERIODS = {"day": "%Y-%m-%d", "month": "%Y-%m"}

#: A window is accounted in this many quanta; one quantum of the limit is lost to rounding.
QUANTA_PER_WINDOW = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """One thing that is limited: an amount of a unit in any window, or in total."""

    #: unique within the domain, such as ``acct/gpt-4o/tokens/60``
    key: str
    unit: Unit
    capacity: int
    #: seconds; None makes it a total that nothing but a rebuild gives back: a budget
    window_s: float | None
    #: seconds of the rate that may be taken at once after a pause
    burst_s: float = 5.0
    #: seconds a granted request may take to arrive; the window is accounted that much longer
    slack_s: float = 2.0
    #: whether the service counts what was reserved or what was used
    counts: Counts = "reserved"
    #: a total that begins anew with each day or month, in UTC
    period: Literal["", "day", "month"] = ""

    def key_at(self, now: float) -> str:
        """Return the key of what is counted at ``now`` (Unix seconds): of the period that it falls into."""
        if not self.period:
            return self.key
        return f"{self.key}/{datetime.fromtimestamp(now, UTC):{_PERIODS[self.period]}}"

    def resets_in(self, now: float) -> float | None:
        """Return the seconds until a total of a day or month begins anew; None for other meters."""
        if not self.period:
            return None
        today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        following = today + timedelta(days=1)
        if self.period == "month":
            # The 28th and four days more are in the next month, whatever the month.
            following = (today.replace(day=28) + timedelta(days=4)).replace(day=1)
        return following.timestamp() - now

    @property
    def quantum_s(self) -> float:
        """Seconds of one accounting step."""
        return (self.window_s or 0.0) / QUANTA_PER_WINDOW

    @property
    def kept_s(self) -> float:
        """Seconds for which a grant counts against the window, one rounding step included."""
        return (self.window_s or 0.0) + self.slack_s + self.quantum_s

    @property
    def rate(self) -> float:
        """Units per second that can be kept up for ever; 0 for a budget."""
        return self.capacity / self.kept_s if self.window_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """
    A credential or an endpoint that calls go through: closed, for everybody, while it fails.

    One that is parked is tried by one call at a time, until an answer opens it again.
    """

    #: ``credential/<id>`` or ``endpoint/<address>/<model>``; safe to log
    name: str
    #: failures of so many different items in a row, over at least ``over_s`` seconds, park it; 0 never does
    failures: int = 0
    over_s: float = 0.0
    #: seconds from one try of a parked one to the next
    probe_s: float = 60.0
    #: seconds for which one call has it alone that nobody has had an answer from lately; 0 lets all through
    trial_s: float = 0.0
    #: whether a person has to open it once it was parked
    sticky: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What calls have met at a gate since the last take."""

    gate: str
    #: state time of the latest grant among the calls that were answered; None when none was
    answered_at: float | None = None
    #: items that met a failure there since the last answer
    failed: tuple[str, ...] = ()
    #: state time of the latest grant among those that were never used
    unused_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A gate that lets nobody through."""

    gate: str
    #: state times: when it was parked, and when it is tried again (None: when a person says so)
    since: float
    until: float | None
    #: why, in a few words: the status and code of what was seen there
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Who takes, and from what: everything one atomic take touches lies in one ``domain``."""

    domain: str
    #: throttling (not-before, adaptive factor) is shared by everybody with this key
    throttle: str
    meters: tuple[Meter, ...]
    max_in_flight: int
    #: the task that takes, and the number of its try; a newer number shuts the older one out
    owner: str
    fence: int
    #: seconds after which a call is surely over, and its lease free again
    lease_s: float = 900.0
    #: seconds after which the leases of an owner are free again that takes nothing, not even of nothing
    life_s: float = 60.0
    #: those who wait for the same limits wait in one queue; the throttle's when empty
    queue: str = ""
    #: who waits in it: one name for each process and try; owner and fence when empty
    waiter: str = ""
    #: 0 goes before 1
    priority: int = 1
    #: what a call goes through; all of them have to be open
    gates: tuple[Gate, ...] = ()

    @property
    def queue_key(self) -> str:
        """Name of the queue."""
        return self.queue or self.throttle

    @property
    def waiter_key(self) -> str:
        """Name in the queue."""
        return self.waiter or f"{self.owner}#{self.fence}"

    @property
    def window_s(self) -> float:
        """Seconds in which throttling is thought of: the window of a limit per minute."""
        return min((m.window_s for m in self.meters if m.window_s is not None), default=60.0)

    def about(self, told: Iterable[Told]) -> dict[Meter, Told]:
        """Return what was told by the meter that it is about: the unit's one with the shortest window."""
        by_unit = {one.unit: one for one in told}
        windows = sorted((m.window_s, n) for n, m in enumerate(self.meters) if m.window_s is not None)
        meters = [self.meters[number] for _, number in windows]
        return {meter: by_unit.pop(meter.unit) for meter in meters if meter.unit in by_unit}


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one request wants to take."""

    tokens: int
    micro_usd: int = 0

    def amount(self, unit: Unit) -> int:
        """Return how much of ``unit`` it takes."""
        return 1 if unit == "requests" else self.tokens if unit == "tokens" else self.micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a take gave: the right to send one request within the arrival slack."""

    id: str
    need: Need
    #: state time of the take
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What became of a grant, each said once."""

    grant: Grant
    #: tokens that the call used; None when it may have been charged but nobody knows
    tokens: int | None = None
    #: money that it cost; None keeps the reservation
    micro_usd: int | None = None
    #: False when the request surely never reached the service: everything is given back
    sent: bool = True
    #: True when the request left after its slack: windows count it once more, from now. The call is still
    #: open, and what it used is settled later
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the service says about one of its limits; it makes a meter smaller than configured, not larger."""

    unit: Unit
    #: what a window admits; None when it does not say
    limit: int | None = None
    #: what is left by now at the most; None when it does not say
    remaining: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The answer to a take: grants for the first needs of the list, in order."""

    grants: tuple[Grant, ...]
    #: seconds until it makes sense to ask for the next need; 0 when all were granted
    wait_s: float = 0.0
    #: the meter that the next need waits for; or ``in_flight``, ``throttle``, ``turn`` (somebody who has
    #: waited longer takes first), ``gate``
    waits_for: str = ""
    #: True when waiting cannot help: the budget named by ``waits_for`` is spent, whatever the calls that are
    #: open will turn out to cost, or the need is larger than the meter
    refused: bool = False
    #: True when the store has lost what it knew: nothing was granted, windows count as used up, and budgets
    #: have to be rebuilt before it is asked again
    lost: bool = False
    #: the gate that is parked, when it is one that ``waits_for`` speaks of
    closed: Closed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How full a meter is."""

    key: str
    used: int
    capacity: int
    factor: float = 1.0


class Limits(Protocol):
    """Requests, tokens, calls in flight and money, taken in one atomic step."""

    async def take(
        self,
        scope: Scope,
        needs: Sequence[Need],
        settled: Sequence[Settlement] = (),
        told: Sequence[Told] = (),
        seen: Sequence[Seen] = (),
    ) -> Taken:
        """
        Settle what is done, then grant as many of ``needs`` as fit, in order.

        :param told: what the service has said about its limits since the last take, one of a unit.
        :param seen: what calls have met since then, one of a gate.

        A take is a sign of life, also without needs: see :attr:`Scope.life_s`.

        Who waits for a meter has a place in its line, so that others do not take what a large need waits
        for. The place is kept by asking again, at least once a second.

        :raises StaleFenceError: when a newer try of the owner has started; settlements are kept.
        """

    async def throttle(self, scope: Scope, seconds: float) -> None:
        """Let nobody who shares the scope's throttle take for ``seconds``, and lower its factor."""

    async def rebuild(self, scope: Scope, used: Mapping[str, int]) -> None:
        """
        Raise budgets (meters without a window) to what the ledger says was spent.

        A larger total stays: it knows of calls that are open now, here and in other processes.
        """

    async def levels(self, scope: Scope) -> Sequence[Level]:
        """Return how full each meter is."""


class Fences(Protocol):
    """Numbers of tries: a later try gets a higher number."""

    async def next(self, owner: str, at_least: int = 1) -> int:
        """Start a new try, shut out the older ones, free their leases, and return its number."""


class Health(Protocol):
    """Which credentials and endpoints are parked; takes look at it."""

    async def park(self, gate: Gate, reason: str) -> Closed:
        """Let nobody through a gate from now on, but one call each ``probe_s`` seconds to try it."""

    async def unpark(self, gate: str) -> None:
        """Open a gate, whatever was seen there."""

    async def parked(self) -> Sequence[Closed]:
        """Return the gates that are closed."""


class Latencies(Protocol):
    """How long calls take at each endpoint, as all workers have seen it lately."""

    async def add_latencies(self, counts: Mapping[str, Mapping[int, int]], span_s: float) -> None:
        """
        Count calls.

        :param counts: calls by endpoint and bucket; what a bucket means is the caller's business.
        :param span_s: seconds for which they are remembered.
        """

    async def latencies(self, endpoints: Sequence[str], span_s: float) -> Mapping[str, Mapping[int, int]]:
        """Return what was counted within the last ``span_s`` seconds, at the most a quarter more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a run is; refreshed every few seconds."""

    owner: str
    result_path: str
    done: int
    items: int
    #: further figures for people: rate, eta_s, usd, waits_for
    figures: Mapping[str, Any] = field(default_factory=dict)
    at: float = 0.0


class Progress(Protocol):
    """Where every run stands."""

    async def report(self, standing: Standing) -> None:
        """Store how far a run is."""

    async def standing(self, owner: str) -> Standing | None:
        """Return what was last stored for an owner."""


class State(Limits, Fences, Health, Latencies, Progress, Protocol):
    """All roles in one place, with a life time."""

    async def close(self) -> None:
        """Let go of connections."""
