"""
Metrics for statsd: counters, gauges and timings, with their dimensions in the name.

A name reads ``llmbatch.<job>.<task>.<metric>`` and then the values of the metric's dimensions; the job is the
DAG. No id of an item, key or account and no text is in one. What is counted is summed up and sent once a
second, so that a fast run costs the network no more than a slow one.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Protocol

from airflow_provider_llmbatch.engine.observe.events import (
    CallFailed,
    Event,
    ItemDone,
    Parked,
    Pulse,
    Reopened,
    RunEnded,
    RunStarted,
    StateBack,
    StateLost,
    Throttled,
)
from airflow_provider_llmbatch.engine.observe.names import NONE, Values, segment

#: Seconds between two flushes.
FLUSH_S = 1.0
#: Latencies sent at one flush; of more, so many that are spread like all of them.
TIMINGS_PER_FLUSH = 50

_MICRO = 1_000_000


class StatsClient(Protocol):
    """The part of a statsd client that is used."""

    def incr(self, stat: str, count: int, /) -> object:
        """Add to a counter."""

    def gauge(self, stat: str, value: float, /) -> object:
        """Set a gauge."""

    def timing(self, stat: str, ms: float, /) -> object:
        """Add a duration in milliseconds to a distribution."""


class ClosableStatsClient(StatsClient, Protocol):
    """A client with a socket of its own."""

    def close(self) -> None:
        """Let go of the socket."""


def connect(host: str, port: int, prefix: str | None) -> ClosableStatsClient:
    """
    Return a client that sends to a statsd server by UDP.

    :raises OSError: when the host's name is not known.
    """
    from statsd import StatsClient as UdpClient

    client: ClosableStatsClient = UdpClient(host, port, prefix=prefix, ipv6=":" in host)
    return client


class MetricsObserver:
    """
    Send what happens to statsd.

    :param stats: where it goes.
    :param job: the DAG's id.
    :param task: the task's id.
    :param now: a clock that only goes forward, in seconds.
    """

    def __init__(
        self, stats: StatsClient, *, job: str, task: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._stats = stats
        self._prefix = f"llmbatch.{segment(job)}.{segment(task)}"
        self._now = now
        self._flushed_at = now()
        self._counts: Counter[str] = Counter()
        self._gauges: dict[str, float] = {}
        self._latencies: defaultdict[str, list[float]] = defaultdict(list)
        #: micro-dollars by model, down to the fractions that are not sent yet
        self._money: defaultdict[str, Decimal] = defaultdict(Decimal)
        #: totals that events tell, as far as they are counted
        self._told: Counter[str] = Counter()
        self._models, self._endpoints, self._kinds, self._statuses, self._steps = (Values() for _ in range(5))

    def on(self, event: Event) -> None:
        """Count an event, and send what has added up if it is time."""
        match event:
            case ItemDone():
                self._item(event)
            case Pulse():
                self._pulse(event)
            case RunStarted():
                self._count("resumed", n=event.resumed)
                self._told["possible_double_paid"] = event.possible_double_paid
            case RunEnded():
                self._count("runs", event.state)
                self._rise("possible_double_paid", event.possible_double_paid)
            case _:
                self._trouble(event)
        if isinstance(event, RunEnded) or self._now() - self._flushed_at >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Send what has added up since the last time."""
        self._flushed_at = self._now()
        for model, micro in self._money.items():
            self._count("micro_usd", model, n=int(micro))
            self._money[model] -= int(micro)
        latencies, self._latencies = self._latencies, defaultdict(list)
        # Taken out one by one: what a failing client has been given is not given to it again.
        while self._counts:
            self._stats.incr(*self._counts.popitem())
        while self._gauges:
            self._stats.gauge(*self._gauges.popitem())
        for name, all_ms in latencies.items():
            for ms in _spread(all_ms, max(1, TIMINGS_PER_FLUSH // len(latencies))):
                self._stats.timing(name, ms)

    def _item(self, event: ItemDone) -> None:
        model, usage = self._models.name(event.model), event.usage
        self._count("items", event.outcome)
        self._count("tokens", "in", model, n=usage.prompt)
        self._count("tokens", "cached", model, n=usage.cached)
        self._count("tokens", "out", model, n=usage.completion)
        self._count("tokens", "reasoning", model, n=usage.reasoning)
        self._count("unpriced", model, n=event.cost.unpriced)
        self._money[model] += event.cost.usd * _MICRO
        if event.salvage is not None:
            self._count("salvaged", self._steps.name(event.salvage))
        if event.call_ms:
            name = self._name("latency", self._endpoints.name(event.endpoint), model)
            self._latencies[name].append(event.call_ms)

    def _trouble(self, event: Event) -> None:
        match event:
            case CallFailed():
                status = "" if event.status is None else str(event.status)
                self._count("failed_calls", self._kinds.name(event.kind), self._statuses.name(status))
            case Throttled():
                self._count("throttled", self._models.name(event.model))
            case Parked():
                self._count("parked", event.what)
            case Reopened():
                self._count("reopened", event.what)
            case StateLost():
                self._count("state", "lost")
            case StateBack():
                self._count("state", "back")

    def _pulse(self, event: Pulse) -> None:
        waited_ms: Counter[str] = Counter()
        for what, seconds in event.waited_s.items():
            waited_ms[_limit(what)] += int(seconds * 1000)
        for limit, ms in waited_ms.items():
            self._rise("waited_ms", ms, limit)
        self._rise("late_arrivals", event.late_arrivals)
        for limit, use in _fullest(event.use).items():
            self._gauges[self._name("limit_use", limit)] = round(use, 4)

    def _count(self, metric: str, *values: str, n: int = 1) -> None:
        if n:
            self._counts[self._name(metric, *values)] += n

    def _rise(self, metric: str, total: int, *values: str) -> None:
        """Count by how much a total is larger than it was."""
        key = ".".join((metric, *values))
        self._count(metric, *values, n=max(0, total - self._told[key]))
        self._told[key] = max(total, self._told[key])

    def _name(self, metric: str, *values: str) -> str:
        return ".".join((self._prefix, metric, *values))


def _limit(key: str) -> str:
    """Return the kind of a limit; its key names an account and a run, which are no closed set."""
    if key.startswith("budget/"):
        return "budget"
    return segment(key.rpartition("/")[2]) if key else NONE


def _fullest(use: Mapping[str, float]) -> dict[str, float]:
    fullest: dict[str, float] = {}
    for key, share in use.items():
        limit = _limit(key)
        fullest[limit] = max(share, fullest.get(limit, 0.0))
    return fullest


def _spread(values: Sequence[float], most: int) -> Sequence[float]:
    """Return at most so many of the values, one from the middle of each of as many equal shares."""
    if len(values) <= most:
        return values
    ordered = sorted(values)
    return [ordered[(2 * place + 1) * len(ordered) // (2 * most)] for place in range(most)]
