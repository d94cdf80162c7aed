"""What is looked at every few seconds while a run goes on: how many slots it needs, and what it waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable

from airflow_provider_llmbatch.engine.dispatch.lanes import Lanes
from airflow_provider_llmbatch.engine.dispatch.limit.concurrency import EVERY_S
from airflow_provider_llmbatch.engine.dispatch.policy import Policy
from airflow_provider_llmbatch.engine.dispatch.router import Router
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.observe.latency import LatencyHistogram
from airflow_provider_llmbatch.engine.state.protocols import Latencies
from airflow_provider_llmbatch.errors import LLMBatchError, StoppedError

#: Seconds after which a run goes on that only has to change its process.
AT_ONCE_S = 1.0
#: Longest rest of a run that waits for an endpoint, as it grows with the outage. Seconds.
OUTAGE_REST_S = 600.0
#: Calls that it takes to know how slow an endpoint is.
ENOUGH_CALLS = 20


class Beat:
    """
    Looks at a run now and then.

    :param lanes: the ways a call can go; their slots are resized.
    :param router: is told how long calls take, when routes depend on it.
    :param latencies: how long calls take everywhere; None when nothing depends on it.
    :param room_has_changed: is told when slots were resized.
    :param observe: gets the events.
    :param now: the process's clock.
    :param policy: says when it is better to end and go on later.
    :param stop: ends the run in good order.
    """

    def __init__(
        self,
        *,
        lanes: Lanes,
        router: Router,
        latencies: Latencies | None,
        room_has_changed: Callable[[], None],
        observe: events.Observer,
        now: Callable[[], float],
        policy: Policy,
        stop: Callable[[LLMBatchError], None],
    ) -> None:
        self._lanes = lanes
        self._router = router
        self._latencies = latencies
        self._policy = policy
        self._stop = stop
        self._began = now()
        self._room_has_changed = room_has_changed
        self._observe = observe
        self._now = now

    async def go_on(self) -> None:
        """Look every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.resize()
            await self.compare()
            await self._lanes.renew_early()
            await self.tell()
            self.rest()

    def rest(self) -> None:
        """End the run, to go on later, when a worker would only be held for waiting."""
        policy = self._policy
        if policy.max_runtime_s is not None and self._now() - self._began > policy.max_runtime_s:
            why = f"The task has run for max_runtime ({policy.max_runtime_s:g} s)."
            self._stop(StoppedError(why, retryable=True, retry_after_s=AT_ONCE_S))
        elif policy.defer_after_s is not None and not any(lane.attempts.open for lane in self._lanes):
            wait_s, waits_for = self._wait()
            if wait_s > policy.defer_after_s:
                why = f"Nothing can be sent for {wait_s:.0f} s; it waits for {waits_for}."
                self._stop(StoppedError(why, retryable=True, retry_after_s=wait_s))

    def _wait(self) -> tuple[float, str]:
        """Return how long nothing can be sent, and what for."""
        outage_s = self._lanes.outage_s()
        if outage_s > self._policy.probe_s:
            # It was tried, and failed once more: the longer it is away, the longer it is left alone.
            return min(OUTAGE_REST_S, outage_s), "gate"
        waiting = [lane for lane in self._lanes.used if lane.slots.wanted]
        waits = ((self._lanes.wait_s(lane), lane.limiter.waits_for) for lane in waiting)
        return min(waits, default=(0.0, ""))

    def resize(self) -> None:
        """Let the number of slots follow the limits and the latency."""
        now = self._now()
        for lane in self._lanes.used:
            oldest_s = now - min(lane.attempts.open.values(), default=now)
            lane.slots.resize(lane.pace.concurrency(lane.scope.meters, oldest_s, lane.most))
        self._room_has_changed()

    async def compare(self) -> None:
        """Tell others how long calls took, and learn how long theirs did."""
        if self._latencies is None:
            return
        span_s = self._policy.latency_span_s
        taken: defaultdict[str, LatencyHistogram] = defaultdict(LatencyHistogram)
        for lane in self._lanes:
            # Several credentials call one endpoint.
            taken[lane.endpoint.name].merge(lane.latency)
            lane.latency = LatencyHistogram()
        counts = {name: calls.counts() for name, calls in taken.items() if calls}
        with contextlib.suppress(LLMBatchError):
            await self._latencies.add_latencies(counts, span_s)
            gates = {lane.endpoint.name: lane.route for lane in self._lanes}
            found = await self._latencies.latencies(list(gates), span_s)
            histograms = {gates[name]: LatencyHistogram.of(calls) for name, calls in found.items()}
            self._router.p95_ms = {
                route: calls.quantile(0.95)
                for route, calls in histograms.items()
                if len(calls) >= ENOUGH_CALLS
            }

    async def tell(self) -> None:
        """Tell how things stand, also when nothing has happened."""
        use: dict[str, float] = {}
        waited_s: Counter[str] = Counter()
        for lane in self._lanes.used:
            waited_s.update(lane.limiter.waited_s)
            with contextlib.suppress(LLMBatchError):
                levels = await lane.limiter.levels()
                use.update({key: used / max(1, capacity) for key, (used, capacity) in levels.items()})
        self._observe.on(
            events.Pulse(
                waits_for=self._wait()[1],
                waited_s=dict(waited_s),
                use=use,
                late_arrivals=sum(lane.limiter.late_arrivals for lane in self._lanes),
            )
        )
