"""What is looked at every few seconds while a run goes on: how many slots it needs, and what it waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from airflow_provider_llmbatch.engine.dispatch.attempt import Attempts
from airflow_provider_llmbatch.engine.dispatch.limit.concurrency import EVERY_S, Pace
from airflow_provider_llmbatch.engine.dispatch.limit.limiter import Limiter
from airflow_provider_llmbatch.engine.dispatch.pursue import Policy
from airflow_provider_llmbatch.engine.dispatch.slots import Slots
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.state.protocols import Scope
from airflow_provider_llmbatch.errors import LLMBatchError, StoppedError

#: Seconds after which a run goes on that only has to change its process.
AT_ONCE_S = 1.0


class Beat:
    """
    Looks at a run now and then.

    :param attempts: knows the calls that are open.
    :param pace: knows how long calls take.
    :param slots: are resized.
    :param most: most slots.
    :param scope: what limits the flow.
    :param limiter: knows what is waited for.
    :param room_has_changed: is told when slots were resized.
    :param observe: gets the events.
    :param now: the process's clock.
    :param policy: says when it is better to end and go on later.
    :param stop: ends the run in good order.
    """

    def __init__(
        self,
        *,
        attempts: Attempts,
        pace: Pace,
        slots: Slots,
        most: int,
        scope: Scope,
        limiter: Limiter,
        room_has_changed: Callable[[], None],
        observe: events.Observer,
        now: Callable[[], float],
        policy: Policy,
        stop: Callable[[LLMBatchError], None],
    ) -> None:
        self._policy = policy
        self._stop = stop
        self._began = now()
        self._attempts = attempts
        self._pace = pace
        self._slots = slots
        self._most = most
        self._scope = scope
        self._limiter = limiter
        self._room_has_changed = room_has_changed
        self._observe = observe
        self._now = now

    async def go_on(self) -> None:
        """Look every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.resize()
            await self.tell()
            self.rest()

    def rest(self) -> None:
        """End the run, to go on later, when a worker would only be held for waiting."""
        policy, wait_s = self._policy, self._limiter.wait_s
        if policy.max_runtime_s is not None and self._now() - self._began > policy.max_runtime_s:
            why = f"The task has run for max_runtime ({policy.max_runtime_s:g} s)."
            self._stop(StoppedError(why, retryable=True, retry_after_s=AT_ONCE_S))
        elif policy.defer_after_s is not None and wait_s > policy.defer_after_s and not self._attempts.open:
            why = f"Nothing can be sent for {wait_s:.0f} s; it waits for {self._limiter.waits_for}."
            self._stop(StoppedError(why, retryable=True, retry_after_s=wait_s))

    def resize(self) -> None:
        """Let the number of slots follow the limits and the latency."""
        now = self._now()
        oldest_s = now - min(self._attempts.open.values(), default=now)
        self._slots.resize(self._pace.concurrency(self._scope.meters, oldest_s, self._most))
        self._room_has_changed()

    async def tell(self) -> None:
        """Tell how things stand, also when nothing has happened."""
        levels: dict[str, tuple[int, int]] = {}
        with contextlib.suppress(LLMBatchError):
            levels.update(await self._limiter.levels())
        self._observe.on(
            events.Pulse(
                waits_for=self._limiter.waits_for,
                waited_s=dict(self._limiter.waited_s),
                use={key: used / max(1, capacity) for key, (used, capacity) in levels.items()},
                late_arrivals=self._limiter.late_arrivals,
            )
        )
