"""
One queue per process in front of the shared limits.

Requests that already hold a connection slot line up here; one loop settles what is done and takes for
all that wait in a single step. So the cost of a take is shared by everything that arrives meanwhile,
and the head of the line is never overtaken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.state.protocols import Grant, Limits, Need, Scope, Settlement
from airflow_provider_llmbatch.errors import LLMBatchError, StaleFenceError

#: Most requests taken for in one step.
TAKE_AT_MOST = 64
#: Longest sleep before the shared state is asked again, so that a change made elsewhere is seen.
ASK_AGAIN_S = 1.0


class LimitRefusedError(LLMBatchError):
    """
    Waiting cannot help: the named meter will never have room.

    :param meter: key of the meter.
    """

    def __init__(self, meter: str) -> None:
        super().__init__(f"No room in {meter}, now or later.")
        self.meter = meter


@dataclass(frozen=True, slots=True)
class Granted:
    """A grant, and when it was asked for at the latest, on the process's own clock."""

    grant: Grant
    taken_at: float


@dataclass(slots=True)
class _Waiter:
    need: Need
    granted: asyncio.Future[Granted]


class Limiter:
    """
    Takes grants from shared limits for the requests of this process.

    Use it as an async context manager.

    :param limits: the shared limits.
    :param scope: what to take from, and as whom.
    :param now: monotonic clock.
    """

    def __init__(self, limits: Limits, scope: Scope, *, now: Callable[[], float]) -> None:
        self._limits = limits
        self._scope = scope
        self._now = now
        self._waiting: deque[_Waiter] = deque()
        self._settled: list[Settlement] = []
        self._ring = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self.granted_requests = 0
        self.granted_tokens = 0
        #: seconds during which somebody waited here, by what they waited for
        self.waited_s: dict[str, float] = {}
        #: what the head of the line waits for now; ``""`` when nobody waits
        self.waits_for = ""

    async def __aenter__(self) -> Limiter:
        self._loop = asyncio.create_task(self._serve(), name="llmbatch-limiter")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            self._loop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loop
        if self._settled:
            with contextlib.suppress(StaleFenceError):
                await self._limits.take(self._scope, (), self._drain())

    async def acquire(self, need: Need) -> Granted:
        """
        Wait for the right to send one request.

        :raises LimitRefusedError: when waiting cannot help.
        :raises StaleFenceError: when a newer try has started.
        :raises StoreError: when the shared state fails.
        """
        if self._failure is not None:
            raise self._failure
        waiter = _Waiter(need, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._ring.set()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            self._forget(waiter)
            raise

    def settle(self, settlement: Settlement) -> None:
        """Say what became of a grant; it is written with the next step."""
        self._settled.append(settlement)
        self._ring.set()

    async def throttle(self, seconds: float) -> None:
        """Hold everybody back who shares this limit."""
        await self._limits.throttle(self._scope, seconds)
        self._ring.set()

    async def levels(self) -> Mapping[str, tuple[int, int]]:
        """Return ``{meter: (used, capacity)}``."""
        return {level.key: (level.used, level.capacity) for level in await self._limits.levels(self._scope)}

    def _forget(self, waiter: _Waiter) -> None:
        if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
            # Granted and cancelled in the same turn of the loop: nothing was sent.
            self.settle(Settlement(grant=waiter.granted.result().grant, sent=False))
        else:
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiter)

    def _drain(self) -> list[Settlement]:
        settled, self._settled = self._settled, []
        return settled

    async def _serve(self) -> None:
        try:
            while True:
                await self._ring.wait()
                self._ring.clear()
                wait_s = await self._step()
                while wait_s > 0 and self._waiting:
                    before = self._now()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._ring.wait(), min(wait_s, ASK_AGAIN_S))
                    self._ring.clear()
                    slept = self._now() - before
                    self.waited_s[self.waits_for] = self.waited_s.get(self.waits_for, 0.0) + slept
                    # A ring before the time is up matters only if it may have made room.
                    wait_s = 0.0 if self._settled else wait_s - slept
                    if wait_s <= 0 or slept >= ASK_AGAIN_S:
                        wait_s = await self._step()
        except Exception as error:
            self.refuse_all(error)

    async def _step(self) -> float:
        """Settle and take once; return the seconds the head has to wait, 0 when nobody does."""
        head = (
            list(self._waiting)[:TAKE_AT_MOST] if len(self._waiting) > TAKE_AT_MOST else list(self._waiting)
        )
        settled, asked_at = self._drain(), self._now()
        try:
            taken = await self._limits.take(self._scope, [w.need for w in head], settled)
        except BaseException:
            self._settled = settled + self._settled
            raise
        for waiter, grant in zip(head, taken.grants, strict=False):
            self._give(waiter, Granted(grant, asked_at))
        self.waits_for = taken.waits_for
        if taken.refused:
            self._refuse(head[len(taken.grants)], taken.waits_for)
        if self._waiting and (taken.wait_s == 0 or taken.refused):
            self._ring.set()
            return 0.0
        return taken.wait_s

    def _give(self, waiter: _Waiter, granted: Granted) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(waiter)
        if waiter.granted.done():
            self.settle(Settlement(grant=granted.grant, sent=False))
            return
        self.granted_requests += 1
        self.granted_tokens += granted.grant.need.tokens
        waiter.granted.set_result(granted)

    def _refuse(self, waiter: _Waiter, meter: str) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(waiter)
        if not waiter.granted.done():
            waiter.granted.set_exception(LimitRefusedError(meter))

    def refuse_all(self, error: Exception) -> None:
        """Give nobody anything from now on: whoever waits, or comes to wait, gets ``error``."""
        self._failure = self._failure or error
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.granted.done():
                waiter.granted.set_exception(error)
