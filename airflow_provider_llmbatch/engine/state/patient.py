"""
State that is waited for while it is away: nothing is sent meanwhile, and it is said so.

The policy is closed: a worker that cannot see the shared limits takes nothing, since no share of a limit is
safe while nobody knows how many others take theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from airflow_provider_llmbatch.engine.observe.events import Observer, StateBack, StateLost
from airflow_provider_llmbatch.engine.state.protocols import (
    Closed,
    Gate,
    Level,
    Need,
    Scope,
    Seen,
    Settlement,
    Standing,
    State,
    Taken,
    Told,
)
from airflow_provider_llmbatch.errors import StateUnreachableError

T = TypeVar("T")

#: Seconds between two tries to reach it.
TRY_AGAIN_S = 0.5


class PatientState:
    """
    Waits for a state that is away, without end; whoever waits for it can be cancelled.

    :param state: what is waited for.
    :param observe: is told when it goes and when it is back.
    :param spent: what budgets have been spent, by meter, as the ledger knows; asked when the state has lost
        what it knew.
    :param now: the process's clock.
    """

    def __init__(
        self,
        state: State,
        observe: Observer,
        *,
        spent: Callable[[Scope], Mapping[str, int]],
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._observe = observe
        self._spent = spent
        self._now = now
        self._away_since: float | None = None

    async def take(
        self,
        scope: Scope,
        needs: Sequence[Need],
        settled: Sequence[Settlement] = (),
        told: Sequence[Told] = (),
        seen: Sequence[Seen] = (),
    ) -> Taken:
        """See :meth:`.protocols.Limits.take`."""
        taken = await self._patiently(lambda: self._state.take(scope, needs, settled, told, seen))
        while taken.lost:
            # The settlements were taken in; only the needs are asked for again.
            self._observe.on(StateLost(reason="Its data are gone.", policy="rebuilt"))
            await self.rebuild(scope, await asyncio.to_thread(self._spent, scope))
            taken = await self._patiently(lambda: self._state.take(scope, needs))
        return taken

    async def throttle(self, scope: Scope, seconds: float) -> None:
        """See :meth:`.protocols.Limits.throttle`."""
        await self._patiently(lambda: self._state.throttle(scope, seconds))

    async def rebuild(self, scope: Scope, used: Mapping[str, int]) -> None:
        """See :meth:`.protocols.Limits.rebuild`."""
        await self._patiently(lambda: self._state.rebuild(scope, used))

    async def levels(self, scope: Scope) -> Sequence[Level]:
        """See :meth:`.protocols.Limits.levels`; nobody waits for it."""
        return await self._state.levels(scope)

    async def next(self, owner: str, at_least: int = 1) -> int:
        """See :meth:`.protocols.Fences.next`."""
        return await self._patiently(lambda: self._state.next(owner, at_least))

    async def park(self, gate: Gate, reason: str) -> Closed:
        """See :meth:`.protocols.Health.park`."""
        return await self._patiently(lambda: self._state.park(gate, reason))

    async def unpark(self, gate: str) -> None:
        """See :meth:`.protocols.Health.unpark`."""
        await self._patiently(lambda: self._state.unpark(gate))

    async def parked(self) -> Sequence[Closed]:
        """See :meth:`.protocols.Health.parked`; nobody waits for it."""
        return await self._state.parked()

    async def add_latencies(self, counts: Mapping[str, Mapping[int, int]], span_s: float) -> None:
        """See :meth:`.protocols.Latencies.add_latencies`; nobody waits for it."""
        with suppress(StateUnreachableError):
            await self._state.add_latencies(counts, span_s)

    async def latencies(self, endpoints: Sequence[str], span_s: float) -> Mapping[str, Mapping[int, int]]:
        """See :meth:`.protocols.Latencies.latencies`; nobody waits for it."""
        with suppress(StateUnreachableError):
            return await self._state.latencies(endpoints, span_s)
        return {}

    async def report(self, standing: Standing) -> None:
        """See :meth:`.protocols.Progress.report`; nobody waits for it."""
        with suppress(StateUnreachableError):
            await self._state.report(standing)

    async def standing(self, owner: str) -> Standing | None:
        """See :meth:`.protocols.Progress.standing`."""
        return await self._state.standing(owner)

    async def close(self) -> None:
        """Let go of connections."""
        await self._state.close()

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                answer = await ask()
            except StateUnreachableError as error:
                self._gone(error)
                await asyncio.sleep(TRY_AGAIN_S)
                continue
            self._back()
            return answer

    def _gone(self, error: StateUnreachableError) -> None:
        if self._away_since is None:
            self._away_since = self._now()
            self._observe.on(StateLost(reason=str(error), policy="paused"))

    def _back(self) -> None:
        if self._away_since is not None:
            away_s, self._away_since = self._now() - self._away_since, None
            self._observe.on(StateBack(away_s=away_s))
