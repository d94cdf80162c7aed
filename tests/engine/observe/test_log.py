from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Usage
from airflow_provider_llmbatch.engine.observe.causes import likely_cause
from airflow_provider_llmbatch.engine.observe.events import (
    CallFailed,
    Event,
    ItemDone,
    Parked,
    Pulse,
    Rewritten,
    RunEnded,
    RunStarted,
    StateBack,
    StateLost,
    Throttled,
)
from airflow_provider_llmbatch.engine.observe.log import LogObserver


class Lines:
    """A logger that keeps its lines."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def info(self, message: str, /, *args: object) -> None:
        self.all.append(message % args)

    def warning(self, message: str, /, *args: object) -> None:
        self.all.append("WARNING " + message % args)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def done(outcome: Outcome = Outcome.OK, **more: Any) -> ItemDone:
    known: dict[str, Any] = {
        **{"usage": Usage(prompt=100, cached=40, completion=10), "cost": Cost(usd=Decimal("0.001"))},
        **{"queue_ms": 5.0, "call_ms": 900.0, "endpoint": "main", "model": "small-1"},
    }
    return ItemDone(outcome=outcome, **{**known, **more})


def failed(**more: Any) -> CallFailed:
    known: dict[str, Any] = {
        **{"kind": "http", "status": 429, "code": "rate_limit_exceeded", "message": "slow down"},
        **{"advice": "Retry", "item_id": "a-1", "attempt": 1},
    }
    return CallFailed(**{**known, **more})


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(lines: Lines, clock: Clock) -> LogObserver:
    return LogObserver(lines, total=2000, now=clock)


def test_progress_tells_done_rate_time_to_go_outcomes_tokens_and_money(
    log: LogObserver, lines: Lines, clock: Clock
) -> None:
    for _ in range(99):
        log.on(done())
    clock.now += 10
    log.on(done(Outcome.REFUSED))
    assert lines.all == [
        "100 of 2,000 done (5%), 10.0/s, about 3m10s to go; "
        "ok 99, refused 1; 10,000 tokens in (4,000 cached), 1,000 out; $0.1000"
    ]


def test_progress_comes_once_an_interval_however_many_items_end(
    log: LogObserver, lines: Lines, clock: Clock
) -> None:
    for _ in range(2000):
        clock.now += 0.0625
        log.on(done())
    assert len(lines.all) == 12


def test_a_quiet_run_tells_what_it_waits_for(log: LogObserver, lines: Lines, clock: Clock) -> None:
    log.on(Pulse(waits_for="acme/small-*/tokens_per_minute"))
    assert lines.all == []
    clock.now += 11
    log.on(Pulse(waits_for="acme/small-*/tokens_per_minute"))
    assert lines.all[-1].endswith("waits for tokens_per_minute of account acme, models small-*")
    clock.now += 11
    log.on(Throttled(delay_s=90))
    assert lines.all[-1].endswith("waits for the service, which asked for 1m30s")
    clock.now += 11
    log.on(Pulse(waits_for="turn"))
    assert lines.all[-1].endswith("waits for its turn at the limits")
    clock.now += 11
    log.on(Pulse())
    assert "waits" not in lines.all[-1]


def test_the_rate_is_that_of_the_last_minute(log: LogObserver, lines: Lines, clock: Clock) -> None:
    for _ in range(600):
        clock.now += 0.1
        log.on(done())
    for _ in range(12):
        clock.now += 10
        log.on(Pulse())
    assert "600 of 2,000 done (30%), 0.0/s; ok 600" in lines.all[-1]


def test_resumed_items_count_as_done_and_not_as_speed(log: LogObserver, lines: Lines, clock: Clock) -> None:
    log.on(RunStarted(items=1000, resumed=900, model="small-1", prompt="label@v3"))
    assert lines.all == ["1,000 items for small-1 label@v3, 900 of them finished by earlier tries"]
    clock.now += 10
    log.on(done())
    assert lines.all[-1].startswith("901 of 1,000 done (90%), 0.1/s, about 16m30s to go")


def test_unknown_prices_and_counts_are_said(log: LogObserver, lines: Lines, clock: Clock) -> None:
    clock.now += 10
    log.on(done(usage=Usage(prompt=9, estimated=True), cost=Cost(unpriced=True)))
    assert "about 9 tokens in, 0 out; at least $0.0000" in lines.all[-1]


def test_ten_thousand_failures_of_one_kind_are_one_line_and_a_count(
    log: LogObserver, lines: Lines, clock: Clock
) -> None:
    for _ in range(10_000):
        log.on(failed())
    assert lines.all == [
        "WARNING Call failed (http 429 rate_limit_exceeded), item a-1, attempt 1, then Retry: slow down — "
        "The account's limit is lower than the connection's, or shared with others: lower the latter."
    ]
    log.on(RunEnded(state="complete"))
    assert lines.all[-1].startswith("10,000 calls failed (http 429 rate_limit_exceeded), such as: slow down")


def test_a_service_that_makes_up_codes_cannot_flood_the_log(log: LogObserver, lines: Lines) -> None:
    for number in range(10_000):
        log.on(failed(code=f"code-{number}"))
    log.on(RunEnded(state="complete"))
    assert len(lines.all) < 70
    assert any(line.startswith("9,970 calls failed (of other kinds)") for line in lines.all)


def test_a_hostile_message_stays_one_short_line(log: LogObserver, lines: Lines) -> None:
    forged = "bad\n[2026-05-04] INFO all good\r\x1b[31m\u202e" + "x" * 5000
    log.on(failed(message=forged, code="a\nb", item_id="i\nd"))
    assert len(lines.all) == 1
    assert all(char.isprintable() for char in lines.all[0])
    assert len(lines.all[0]) < 450


def test_what_changes_for_everybody_is_told(log: LogObserver, lines: Lines) -> None:
    log.on(Parked(what="credential", name="key-2", reason="401 from the service"))
    log.on(Parked(what="endpoint", name="main", reason="three failures", for_s=60))
    log.on(Rewritten(endpoint="main", model="thinky-1", drop="max_tokens", rename_to="max_completion_tokens"))
    log.on(Rewritten(endpoint="main", model="thinky-1", drop="temperature"))
    log.on(StateLost(reason="connection refused", policy="paused"))
    log.on(StateBack(away_s=12))
    assert lines.all == [
        "WARNING Parked credential key-2 for everybody: 401 from the service",
        "WARNING Parked endpoint main for everybody, tried again in 1m00s: three failures",
        "thinky-1 at main does not take max_tokens; it is sent as max_completion_tokens from now on",
        "thinky-1 at main does not take temperature; it is left out from now on",
        "WARNING Degraded, paused: the shared state is away: connection refused",
        "The shared state is back after 12s",
    ]


def test_the_end_is_an_account_with_what_may_have_been_paid_twice(
    log: LogObserver, lines: Lines, clock: Clock
) -> None:
    log.on(done(salvage="fence"))
    clock.now += 4000
    log.on(RunEnded(state="stopped", reason="no credential is left", possible_double_paid=3))
    assert lines.all == [
        "Stopped after 1h06m: no credential is left. ok 1; 1 salvaged; "
        "100 tokens in (40 cached), 10 out; $0.0010",
        "WARNING 3 calls may have been charged without leaving a reply",
    ]


@pytest.mark.parametrize(
    ("kind", "status", "code", "word"),
    [
        ("http", 429, "insufficient_quota", "credit"),
        ("http", 429, None, "limit"),
        ("http", 401, None, "key"),
        ("http", 404, "model_not_found", "model"),
        ("http", 404, None, "base URL"),
        ("http", 503, None, "trouble"),
        ("timeout", None, None, "timeout"),
        ("malformed", 200, None, "base URL"),
        ("schema", None, None, "schema"),
        ("http", 400, "budget_exceeded", "budget"),
        ("http", 301, None, "base URL"),
        ("connect", None, "EMFILE", "ulimit"),
        ("truncated", None, None, "max_tokens"),
        ("truncated_by_reasoning", None, None, "effort"),
        ("refusal", None, None, "review"),
        ("content_filter", None, None, "review"),
        ("strange", None, None, ""),
    ],
)
def test_each_failure_has_a_likely_cause(kind: str, status: int | None, code: str | None, word: str) -> None:
    assert word in likely_cause(kind, status, code)


def test_any_order_of_events_is_survived(log: LogObserver, clock: Clock) -> None:
    luck = random.Random(7)
    some: list[Event] = [
        done(),
        failed(),
        Pulse(waits_for="x"),
        Pulse(),
        RunStarted(items=0),
        Throttled(delay_s=1),
    ]
    for _ in range(500):
        clock.now += luck.random() * 20
        log.on(luck.choice(some))
    log.on(RunEnded(state="complete"))
