"""
One queue per process in front of the shared limits.

Requests that already hold a connection slot line up here; one loop settles what is done and takes for
all that wait in a single step. So the cost of a take is shared by everything that arrives meanwhile,
and the head of the line is never overtaken.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_provider_llmbatch.engine.dispatch.limit.headers import aged
from airflow_provider_llmbatch.engine.dispatch.limit.refusals import (
    LimitRefusedError,
    SentAwayError,
    WaitedTooLongError,
)
from airflow_provider_llmbatch.engine.state.protocols import (
    Closed,
    Grant,
    Limits,
    Need,
    Scope,
    Seen,
    Settlement,
    Taken,
    Told,
)
from airflow_provider_llmbatch.errors import LLMBatchError, StaleFenceError

#: Most requests taken for in one step.
TAKE_AT_MOST = 64
#: Longest sleep before the shared state is asked again, so that a change made elsewhere is seen, and the
#: place in the line is kept.
ASK_AGAIN_S = 1.0
#: Share of the time for which leases last without a sign of life, after which one is given.
ALIVE_SHARE = 0.25
#: Longest wait, at the end, for a state that may be away. Seconds.
CLOSE_S = 1.5
#: A state time that is later than all others.
FAR = 4e9
#: Longest time that a settlement waits for others, where it makes no room for anybody here.
SETTLE_S = 0.1


@dataclass(frozen=True, slots=True)
class Granted:
    """A grant, and when it was asked for at the latest, on the process's own clock."""

    grant: Grant
    taken_at: float


@dataclass(slots=True, eq=False)
class _Waiter:
    need: Need
    #: when it gives up, on the process's clock
    until: float
    granted: asyncio.Future[Granted]


class Limiter:
    """
    Takes grants from shared limits for the requests of this process.

    Use it as an async context manager.

    :param limits: the shared limits.
    :param scope: what to take from, and as whom.
    :param now: monotonic clock.
    :param on_closed: is told of a gate that is parked, and says whether those who wait can go elsewhere.
    :param on_wait: is told what the head of the line waits for (``""`` when nobody waits), and how long.
    """

    def __init__(
        self,
        limits: Limits,
        scope: Scope,
        *,
        now: Callable[[], float],
        on_closed: Callable[[Closed], bool] = lambda _: False,
        on_wait: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self._on_closed, self._on_wait = on_closed, on_wait
        self._seen: dict[str, Seen] = {}
        #: the gate that is parked, as the last step has found it
        self.closed: Closed | None = None
        self._limits = limits
        self._scope = scope
        self._now = now
        #: what a settlement makes room in
        self._freed = {"in_flight"} | {
            meter.key for meter in scope.meters if meter.window_s is None or meter.counts == "used"
        }
        self._waiting: deque[_Waiter] = deque()
        self._settled: list[Settlement] = []
        #: what the service said last of each unit, and when the request left that it answered
        self._heard: dict[str, tuple[Told, float]] = {}
        self._ring = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.Task[None] | None = None
        self._closing = False
        self._failure: Exception | None = None
        #: what left, or is about to
        self.granted_requests = 0
        self.granted_tokens = 0
        #: requests that left when their grant was older than the slack
        self.late_arrivals = 0
        #: seconds during which somebody waited here, by what they waited for
        self.waited_s: dict[str, float] = {}
        #: what the head of the line waits for now; ``""`` when nobody waits
        self.waits_for = ""
        #: seconds that it was last told to wait
        self.wait_s = 0.0
        self._waits_since = 0.0

    async def __aenter__(self) -> Limiter:
        self._loop = asyncio.create_task(self._serve(), name="llmbatch-limiter")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._ring.set()
        # What cannot be settled any more stays reserved; rows and ledger are safe.
        with contextlib.suppress(LLMBatchError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                if self._loop is not None:
                    # A step under way ends first: cut off, nobody knows whether it has settled and granted.
                    await self._loop
                await self._limits.take(self._scope, (), self._drain(), (), self._met())
        if self._timer is not None:
            self._timer.cancel()

    async def acquire(self, need: Need, *, until: float = math.inf) -> Granted:
        """
        Wait for the right to send one request.

        :param until: when to give up, on the process's clock.
        :raises LimitRefusedError: when waiting cannot help.
        :raises WaitedTooLongError: when the time is up.
        :raises StaleFenceError: when a newer try has started.
        :raises StoreError: when the shared state fails.
        """
        if self._failure is not None:
            raise self._failure
        waiter = _Waiter(need, until, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            self._ring.set()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            self._forget(waiter)
            raise

    def settle(self, settlement: Settlement) -> None:
        """Say what became of a grant; it is written with the next step."""
        if not settlement.sent:
            self.granted_requests -= 1
            self.granted_tokens -= settlement.grant.need.tokens
        self._settled.append(settlement)
        self._ring_within(0.0 if self.waits_for in self._freed else SETTLE_S)

    def hear(self, told: Iterable[Told], left_at: float) -> None:
        """
        Take in what the service says about its limits; it is passed on with the next step.

        :param left_at: when the request left that was answered, on the process's clock.
        """
        for one in told:
            if one.unit not in self._heard or self._heard[one.unit][1] <= left_at:
                self._heard[one.unit] = one, left_at

    def try_again(self, gate: str) -> None:
        """Have a gate that is parked tried with the next call, whenever that was to be."""
        self._seen[gate] = Seen(gate=gate, unused_at=FAR)

    def answered(self, gate: str, granted_at: float) -> None:
        """
        Say that a call was answered; it is passed on with the next step.

        :param granted_at: state time of its grant.
        """
        before = self._seen.get(gate, Seen(gate=gate))
        latest = max(granted_at, before.answered_at or granted_at)
        self._seen[gate] = replace(before, answered_at=latest, failed=())
        if self.closed is not None:
            self._ring_within(0.0)

    def failed(self, gate: str, item: str) -> None:
        """Say that an item has met a failure that is not its own; it is passed on at once."""
        before = self._seen.get(gate, Seen(gate=gate))
        self._seen[gate] = replace(before, failed=(*before.failed, item))
        self._ring_within(0.0)

    def give_back(self, granted: Granted) -> None:
        """Say that a grant was not used: nothing has left."""
        self.settle(Settlement(grant=granted.grant, sent=False))
        for gate in self._scope.gates:
            before = self._seen.get(gate.name, Seen(gate=gate.name))
            self._seen[gate.name] = replace(before, unused_at=granted.grant.at)

    def late(self, granted: Granted) -> None:
        """Have a grant counted again, from now on, whose request left after its slack."""
        self.late_arrivals += 1
        self._settled.append(Settlement(grant=granted.grant, late=True))
        self._ring_within(0.0)

    async def throttle(self, seconds: float) -> None:
        """Hold everybody back who shares this limit."""
        await self._limits.throttle(self._scope, seconds)

    async def levels(self) -> Mapping[str, tuple[int, int]]:
        """Return ``{meter: (used, capacity)}``."""
        return {level.key: (level.used, level.capacity) for level in await self._limits.levels(self._scope)}

    def send_away(self) -> None:
        """Have those who wait look for another way; whoever comes later is welcome."""
        for waiter in list(self._waiting):
            self._drop(waiter, SentAwayError("There is another way to go."))
        self._ring.set()  # so that nobody else waits for their turn

    def refuse_all(self, error: Exception) -> None:
        """Give nobody anything from now on: whoever waits, or comes to wait, gets ``error``."""
        self._failure = self._failure or error
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.granted.done():
                waiter.granted.set_exception(error)

    def _forget(self, waiter: _Waiter) -> None:
        if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
            # Granted and cancelled in the same turn of the loop: nothing was sent.
            self.give_back(waiter.granted.result())
        else:
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiter)
            self._ring_within(0.0)

    def _drain(self) -> list[Settlement]:
        settled, self._settled = self._settled, []
        return settled

    def _met(self) -> list[Seen]:
        met, self._seen = self._seen, {}
        return list(met.values())

    def _told(self) -> list[Told]:
        """Return what was heard since the last step, as it stands now."""
        heard, self._heard = self._heard, {}
        about = self._scope.about(told for told, _ in heard.values())
        now = self._now()
        return [
            aged(told, now - heard[told.unit][1], meter.capacity, meter.window_s or math.inf)
            for meter, told in about.items()
        ]

    def _ring_within(self, seconds: float) -> None:
        """Let the next step be at most so many seconds away."""
        if seconds <= 0:
            self._ring.set()
            return
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._ring.set()

    async def _serve(self) -> None:
        try:
            while not self._closing:
                await self._ring.wait()
                self._ring.clear()
                wait_s = await self._step()
                # Calls that are open need a sign of life, also when nobody waits.
                self._ring_within(
                    min(wait_s, ASK_AGAIN_S) if self._waiting else self._scope.life_s * ALIVE_SHARE
                )
        except Exception as error:
            self.refuse_all(error)

    async def _step(self) -> float:
        """Settle and take once; return the seconds the head has to wait, 0 when nobody does."""
        if self.waits_for:
            self._count_wait()
        head = list(itertools.islice(self._waiting, TAKE_AT_MOST))
        asked_at = self._now()
        taken = await self._take([waiter.need for waiter in head])
        for waiter, grant in zip(head, taken.grants, strict=False):
            self._give(waiter, Granted(grant, asked_at))
        if taken.refused:
            self._drop(head[len(taken.grants)], LimitRefusedError(taken.waits_for))
        if (self.closed or taken.closed) and head:
            self._heed(taken.closed)
        self.waits_for = taken.waits_for if self._waiting and not taken.refused else ""
        self._waits_since = self._now()
        self.wait_s = taken.wait_s if self.waits_for else 0.0
        self._on_wait(self.waits_for, self.wait_s)
        return self.wait_s

    async def _take(self, needs: list[Need]) -> Taken:
        settled = self._drain()
        try:
            return await self._limits.take(self._scope, needs, settled, self._told(), self._met())
        except StaleFenceError:
            raise  # the settlements were kept
        except BaseException:
            self._settled = settled + self._settled
            raise

    def _heed(self, closed: Closed | None) -> None:
        """Let those who wait for a parked gate go, where there is another way."""
        self.closed = closed
        if closed is not None and self._on_closed(closed):
            self.send_away()

    def _count_wait(self) -> None:
        """Book the time since the last step as waited, and let those give up whose time is over."""
        now = self._now()
        self.waited_s[self.waits_for] = self.waited_s.get(self.waits_for, 0.0) + now - self._waits_since
        for waiter in [waiter for waiter in self._waiting if waiter.until <= now]:
            self._drop(waiter, WaitedTooLongError(self.waits_for))

    def _give(self, waiter: _Waiter, granted: Granted) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(waiter)
        self.granted_requests += 1
        self.granted_tokens += granted.grant.need.tokens
        if waiter.granted.done():
            self.give_back(granted)
        else:
            waiter.granted.set_result(granted)

    def _drop(self, waiter: _Waiter, why: LLMBatchError) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(waiter)
        if not waiter.granted.done():
            waiter.granted.set_exception(why)
