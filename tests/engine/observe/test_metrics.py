from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Usage
from airflow_provider_llmbatch.engine.observe.events import (
    CallFailed,
    Fanout,
    ItemDone,
    Parked,
    Pulse,
    RunEnded,
    RunStarted,
    StateBack,
    StateLost,
    Throttled,
)
from airflow_provider_llmbatch.engine.observe.metrics import TIMINGS_PER_FLUSH, MetricsObserver


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Server:
    """Adds up what a client is given, as a statsd server does."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}
        self.timings: defaultdict[str, list[float]] = defaultdict(list)
        self.sent = 0

    def incr(self, stat: str, count: int, /) -> None:
        self.sent += 1
        self.counters[stat.removeprefix("llmbatch.label_rows.send.")] += count

    def gauge(self, stat: str, value: float, /) -> None:
        self.sent += 1
        self.gauges[stat.removeprefix("llmbatch.label_rows.send.")] = value

    def timing(self, stat: str, ms: float, /) -> None:
        self.sent += 1
        self.timings[stat.removeprefix("llmbatch.label_rows.send.")].append(ms)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def metrics(server: Server, clock: Clock) -> MetricsObserver:
    return MetricsObserver(server, job="label_rows", task="send", now=clock)


def done(outcome: Outcome = Outcome.OK, **more: Any) -> ItemDone:
    known: dict[str, Any] = {
        **{
            "usage": Usage(prompt=100, cached=40, completion=10, reasoning=3),
            "cost": Cost(usd=Decimal("0.001")),
        },
        **{"queue_ms": 5.0, "call_ms": 900.0, "endpoint": "main", "model": "small-1"},
    }
    return ItemDone(outcome=outcome, **{**known, **more})


def failed(kind: str = "http", status: int | None = 503, **more: Any) -> CallFailed:
    known = {"code": None, "message": "away", "advice": "Retry", "item_id": "a-1", "attempt": 1}
    return CallFailed(kind=kind, status=status, **{**known, **more})


def test_items_tokens_money_and_latency_add_up(metrics: MetricsObserver, server: Server) -> None:
    for outcome in [Outcome.OK] * 3 + [Outcome.REFUSED]:
        metrics.on(done(outcome))
    metrics.on(done(Outcome.UNSENT, usage=Usage(), cost=Cost(), call_ms=0.0, endpoint="", model=""))
    metrics.on(RunEnded(state="stopped"))
    assert server.counters == {
        "items.ok": 3,
        "items.refused": 1,
        "items.unsent": 1,
        "tokens.in.small-1": 400,
        "tokens.cached.small-1": 160,
        "tokens.out.small-1": 40,
        "tokens.reasoning.small-1": 12,
        "micro_usd.small-1": 4000,
        "runs.stopped": 1,
    }
    assert server.timings == {"latency.main.small-1": [900.0] * 4}


def test_what_goes_wrong_is_counted_by_kind(metrics: MetricsObserver, server: Server) -> None:
    metrics.on(RunStarted(items=10, resumed=4, possible_double_paid=2))
    for event in [failed(), failed(), failed("timeout", None), failed("schema", None)]:
        metrics.on(event)
    metrics.on(Throttled(delay_s=3, endpoint="main", model="small-1"))
    metrics.on(Parked(what="credential", name="key-2", reason="401"))
    metrics.on(Parked(what="endpoint", name="main", reason="three failures"))
    metrics.on(StateLost(reason="refused", policy="paused"))
    metrics.on(StateBack(away_s=12))
    metrics.on(done(salvage="fence", cost=Cost(unpriced=True), usage=Usage(), call_ms=0.0))
    metrics.on(RunEnded(state="complete", possible_double_paid=5))
    assert server.counters == {
        "resumed": 4,
        "failed_calls.http.503": 2,
        "failed_calls.timeout.none": 1,
        "failed_calls.schema.none": 1,
        "throttled.small-1": 1,
        "parked.credential": 1,
        "parked.endpoint": 1,
        "state.lost": 1,
        "state.back": 1,
        "items.ok": 1,
        "salvaged.fence": 1,
        "unpriced.small-1": 1,
        "possible_double_paid": 3,
        "runs.complete": 1,
    }


def test_waits_are_counted_by_what_is_waited_for_and_never_twice(
    metrics: MetricsObserver, server: Server
) -> None:
    tokens, other = "acme/small-*/tokens_per_minute", "acme/large/tokens_per_minute"
    metrics.on(Pulse(waited_s={tokens: 1.5, "in_flight": 0.25}))
    metrics.on(Pulse(waited_s={tokens: 1.5, "in_flight": 0.25}))
    metrics.on(Pulse(waited_s={tokens: 2.0, other: 1.0, "budget/label_rows/run/send": 0.1}, late_arrivals=2))
    metrics.on(Pulse(late_arrivals=3))
    metrics.flush()
    assert server.counters == {
        "waited_ms.tokens_per_minute": 3000,
        "waited_ms.in_flight": 250,
        "waited_ms.budget": 100,
        "late_arrivals": 3,
    }


def test_the_use_of_a_limit_is_that_of_its_fullest_meter(metrics: MetricsObserver, server: Server) -> None:
    use = {"a/x/tokens_per_minute": 0.96, "b/x/tokens_per_minute": 0.4, "a/x/requests_per_minute": 0.123456}
    metrics.on(Pulse(use=use))
    metrics.flush()
    assert server.gauges == {"limit_use.tokens_per_minute": 0.96, "limit_use.requests_per_minute": 0.1235}


def test_what_adds_up_is_sent_once_a_second_and_at_the_end(
    metrics: MetricsObserver, server: Server, clock: Clock
) -> None:
    for _ in range(999):
        metrics.on(done())
    assert server.sent == 0
    clock.now += 1.0
    metrics.on(done())
    assert server.counters["items.ok"] == 1000
    metrics.on(done())
    assert server.counters["items.ok"] == 1000
    metrics.on(RunEnded(state="complete"))
    assert server.counters["items.ok"] == 1001


def test_a_fast_run_sends_no_more_than_a_slow_one(
    metrics: MetricsObserver, server: Server, clock: Clock
) -> None:
    for _ in range(100_000):
        clock.now += 0.0001
        metrics.on(done())
    metrics.on(RunEnded(state="complete"))
    assert server.counters["items.ok"] == 100_000
    assert server.sent < 11 * (TIMINGS_PER_FLUSH + 10)


def test_the_latencies_that_are_sent_are_spread_like_all_of_them(
    metrics: MetricsObserver, server: Server
) -> None:
    for ms in range(10_000):
        metrics.on(done(call_ms=float((ms * 7919) % 10_000 + 1)))
    metrics.flush()
    sent = server.timings["latency.main.small-1"]
    assert len(sent) == TIMINGS_PER_FLUSH
    # Each stands for one share of the latencies, and lies in its middle.
    assert sent == pytest.approx([10_000 * (2 * n + 1) / (2 * TIMINGS_PER_FLUSH) for n in range(50)], abs=2)


def test_fractions_of_a_micro_dollar_are_not_lost(metrics: MetricsObserver, server: Server) -> None:
    for _ in range(1000):
        metrics.on(done(cost=Cost(usd=Decimal("0.0000003"))))
        metrics.flush()
    assert server.counters["micro_usd.small-1"] == 300


def test_labels_are_few_however_many_models_items_and_limits_there_are(
    metrics: MetricsObserver, server: Server
) -> None:
    """P86."""
    for number in range(20_000):
        metrics.on(
            done(
                item_id=f"item-{number}",
                model=f"model-{number}",
                endpoint=f"http://host-{number}/v1",
                salvage=f"s{number}",
            )
        )
        metrics.on(failed(f"kind-{number}", status=number, code=f"code-{number}", item_id=f"item-{number}"))
    metrics.on(RunEnded(state="complete"))
    names = {*server.counters, *server.timings}
    assert len(names) < 21 * 21 * 2 + 21 * 8
    assert not [name for name in names if "item-" in name or "code-" in name]
    assert server.counters["micro_usd.other"] == (20_000 - 20) * 1000


@pytest.mark.parametrize(
    "text", ["größe", "file=/a b:c", "vendor/llama:free", "a|c\nforged:1|c", "x" * 500, ""]
)
def test_any_id_makes_a_name_that_statsd_and_airflow_take(text: str, server: Server, clock: Clock) -> None:
    """P84."""
    metrics = MetricsObserver(server, job=text, task=text, now=clock)
    metrics.on(done(model=text, endpoint=text))
    metrics.on(Pulse(waited_s={text: 1.0}, use={text: 1.0}))
    metrics.flush()
    names = {*server.counters, *server.timings, *server.gauges}
    assert len(names) >= 8
    for name in names:
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
        assert len(f"airflow.{name}") <= 250


def test_a_client_that_fails_hurts_nothing_and_gets_nothing_twice(server: Server, clock: Clock) -> None:
    """P84."""

    class Flaky(Server):
        def incr(self, stat: str, count: int, /) -> None:
            super().incr(stat, count)
            if self.sent % 2:
                raise OSError("no buffer space available")

    flaky = Flaky()
    fanout = Fanout([MetricsObserver(flaky, job="label_rows", task="send", now=clock)])
    for _ in range(50):
        clock.now += 1.0
        fanout.on(done())
    for _ in range(20):
        clock.now += 1.0
        fanout.on(Pulse())
    assert flaky.counters["items.ok"] == 50
    assert flaky.counters["tokens.in.small-1"] == 5000
