"""Limits over a socket, judged by what arrived at the service."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Outcome, RunRef
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.simulator.arrivals import Arrival, max_in_window, use_of_limit
from airflow_provider_llmbatch.simulator.settings import SimulatedKey
from tests.engine.rehearsal import Recorder, dispatched, job, rows, simulated, simulated_apart
from tests.engine.slow_tls import slow_tls

#: A minute at a twentieth of its length, and its slack with it. The burst stays longer: what holds up a busy
#: machine does not shrink with the window, and what was missed meanwhile is made up for out of the bucket.
WINDOW_S = 3.0
SCALED = {"window_s": WINDOW_S, "arrival_slack": 0.15, "burst_seconds": 1.5, "max_in_flight": 100}


def limited(**amounts: Any) -> dict[str, Any]:
    """Return the fields of a job; the trial of its key would take a good part of so short a window."""
    return {"extra": {**SCALED, **amounts}, "policy": {"trial_s": 0.0}}


def requests_in(arrivals: list[Arrival]) -> list[tuple[float, int]]:
    return [(arrival.time, 1) for arrival in arrivals]


def tokens_in(arrivals: list[Arrival]) -> list[tuple[float, int]]:
    return [(arrival.time, arrival.tokens) for arrival in arrivals]


@pytest.mark.alone
async def test_no_window_at_the_service_holds_more_requests_than_the_limit_and_nearly_all_is_used(
    tmp_path: Path,
):
    """P12."""
    with simulated_apart("--rpm", "60", "--window", "3", "--latency", "0.1") as simulator:
        work = job(rows(170), simulator.url, tmp_path, **limited(requests_per_minute=60))
        done = await dispatched(work)
        arrivals = simulator.arrivals()
    assert done.outcomes == {Outcome.OK: 170}
    assert {arrival.status for arrival in arrivals} == {200}
    assert max_in_window(requests_in(arrivals), WINDOW_S) <= 60
    assert use_of_limit(requests_in(arrivals), WINDOW_S, 60) >= 0.9
    limits = done.manifest.limits
    assert (limits["granted_requests"], limits["late_arrivals"]) == (170, 0)
    assert limits["waited_s"] > 3
    assert limits["use"] >= 0.9


@pytest.mark.alone
@pytest.mark.parametrize("counts", ["reserved", "used"])
async def test_no_window_holds_more_tokens_than_the_limit_in_either_way_of_counting(
    tmp_path: Path, counts: str
):
    tpm = 6000
    arguments = ("--tpm", str(tpm), "--window", "3", "--latency", "0.1", "--counts", counts)
    with simulated_apart(
        *arguments, "--rpm", "100000", "--count-tokens", "o200k", "--output-words", "8"
    ) as simulator:
        texts = [{"prompt": "word " * (5 + 7 * n % 60)} for n in range(190)]
        work = job(
            texts,
            simulator.url,
            tmp_path,
            params={"max_tokens": 60},
            **limited(tokens_per_minute=tpm, counts=counts),
        )
        done = await dispatched(work)
        arrivals = simulator.arrivals()
    assert done.outcomes == {Outcome.OK: 190}
    assert {arrival.status for arrival in arrivals} == {200}
    assert max_in_window(tokens_in(arrivals), WINDOW_S) <= tpm
    if counts == "reserved":
        assert use_of_limit(tokens_in(arrivals), WINDOW_S, tpm) >= 0.9


async def test_fifty_calls_launched_at_once_are_admitted_five_by_five(tmp_path: Path):
    """P01."""
    told = {**SCALED, "tokens_per_minute": 1000, "burst_seconds": 60.0}
    with simulated(latency_s=0.1, tpm=1000, window_s=WINDOW_S) as simulator:
        texts = [{"prompt": "word " * 89} for _ in range(12)]
        work = job(
            texts, simulator.url, tmp_path, params={"max_tokens": 100}, extra=told, model="gpt-4o-mini"
        )
        done = await dispatched(work)
        arrivals = simulator.arrivals()
    assert done.outcomes == {Outcome.OK: 12}
    assert len(arrivals) == 12
    first = [arrival for arrival in arrivals if arrival.time < arrivals[0].time + WINDOW_S]
    assert len(first) <= 5
    assert {arrival.status for arrival in arrivals} == {200}


async def test_counters_equal_what_arrived_and_all_that_is_allowed_goes_out_in_the_first_window(
    tmp_path: Path,
):
    """P14."""
    told = {**SCALED, "requests_per_minute": 20, "burst_seconds": 60.0}
    with simulated(latency_s=0.05, rpm=20, window_s=WINDOW_S) as simulator:
        done = await dispatched(job(rows(20), simulator.url, tmp_path, extra=told))
        arrivals = simulator.arrivals()
    assert done.outcomes == {Outcome.OK: 20}
    assert arrivals[-1].time - arrivals[0].time < WINDOW_S
    assert done.manifest.limits["granted_requests"] == len(arrivals) == 20
    assert done.manifest.limits["granted_tokens"] == sum(arrival.tokens for arrival in arrivals)


async def test_the_limits_of_two_accounts_are_used_at_the_same_time(tmp_path: Path):
    """P14."""
    keys = tuple(SimulatedKey(id=name, key=f"sk-{name}", account=name) for name in "ab")
    told = {**SCALED, "requests_per_minute": 10, "burst_seconds": 60.0}
    told["credentials"] = [{"api_key": "sk-b", "id": "b"}]
    with simulated(latency_s=0.05, rpm=10, window_s=WINDOW_S, keys=keys) as simulator:
        done = await dispatched(job(rows(20), simulator.url, tmp_path, key="sk-a", extra=told))
        arrivals = simulator.arrivals()
    assert done.outcomes == {Outcome.OK: 20}
    assert arrivals[-1].time - arrivals[0].time < WINDOW_S
    assert Counter(arrival.credential for arrival in arrivals) == {"a": 10, "b": 10}
    assert {arrival.status for arrival in arrivals} == {200}


async def test_an_item_larger_than_the_rate_of_a_second_goes_out(tmp_path: Path):
    """P07."""
    with simulated(tpm=6000, window_s=WINDOW_S) as simulator:
        work = job(
            [{"prompt": "word " * 300}],
            simulator.url,
            tmp_path,
            params={"max_tokens": 40},
            **limited(tokens_per_minute=6000),
        )
        done = await dispatched(work)
    assert done.outcomes == {Outcome.OK: 1}


async def test_an_item_over_the_whole_limit_is_too_long_without_a_call_and_the_rest_goes_on(tmp_path: Path):
    with simulated() as simulator:
        texts = [{"prompt": "word " * size} for size in (10, 2000, 10)]
        work = job(texts, simulator.url, tmp_path, **limited(tokens_per_minute=1000))
        done = await dispatched(work)
        assert len(simulator.arrivals()) == 2
    assert [result.outcome for result in done.results] == [Outcome.OK, Outcome.TOO_LONG, Outcome.OK]
    assert "1,000" in str(done.results[1].error)


async def test_the_reserve_for_replies_without_a_cap_never_keeps_an_item_from_going_out(tmp_path: Path):
    """P08."""
    with simulated(tpm=500) as simulator:
        work = job(
            [{"prompt": "Say hello to everybody."}],
            simulator.url,
            tmp_path,
            params={},
            **limited(tokens_per_minute=500),
        )
        done = await dispatched(work)
        assert [arrival.status for arrival in simulator.arrivals()] == [200]
    assert done.outcomes == {Outcome.OK: 1}


async def test_the_reserve_is_learnt_from_replies(tmp_path: Path):
    """P08."""
    with simulated(output_words=8) as simulator:
        done = await dispatched(
            job(rows(100), simulator.url, tmp_path, params={}, extra={**SCALED, "max_in_flight": 5})
        )
    grants = done.manifest.limits["granted_tokens"] / 100
    # At first 512 tokens are reserved for a reply; twenty replies later little more than they took.
    assert grants < 300


async def test_calls_open_at_the_service_are_never_more_than_said(tmp_path: Path):
    """P10, P30."""
    with simulated(latency_s=0.03) as simulator:
        work = job(rows(60), simulator.url, tmp_path, extra={"max_in_flight": 3})
        done = await dispatched(work)
        assert simulator.stats()["max_in_flight"] == 3
    assert done.outcomes == {Outcome.OK: 60}


async def test_two_runs_share_what_may_be_open(tmp_path: Path):
    """P10."""
    state = SqliteState(tmp_path / "state.db")
    with simulated(latency_s=0.03) as simulator:
        works = [
            job(rows(30), simulator.url, tmp_path / name, run=RunRef(task=name), extra={"max_in_flight": 3})
            for name in ("a", "b")
        ]
        done = await asyncio.gather(*(dispatched(work, state) for work in works))
        assert simulator.stats()["max_in_flight"] <= 3
    await state.close()
    assert [one.outcomes for one in done] == [{Outcome.OK: 30}] * 2


async def test_waiting_for_a_slot_is_no_failure_and_uses_no_try(tmp_path: Path):
    """P30."""
    with simulated(latency_s=0.2, jitter=0.0) as simulator:
        work = job(
            rows(100),
            simulator.url,
            tmp_path,
            extra={"max_in_flight": 20, "timeout_s": 2.0},
        )
        done = await dispatched(work)
        assert simulator.stats()["max_in_flight"] == 20
    assert done.outcomes == {Outcome.OK: 100}
    assert {result.attempts for result in done.results} == {1}


@pytest.mark.alone
async def test_connecting_may_take_longer_than_the_slack_and_no_window_is_over(tmp_path: Path):
    told = {**SCALED, "requests_per_minute": 60, "arrival_slack": 0.3, "burst_seconds": 60.0}
    with (
        simulated(rpm=60, window_s=WINDOW_S) as simulator,
        slow_tls(simulator.url, tmp_path, 0.5) as (url, certificate),
    ):
        told["ca_file"] = certificate
        done = await dispatched(job(rows(130), url, tmp_path, extra=told))
        arrivals = simulator.arrivals()
    assert done.outcomes == {Outcome.OK: 130}
    assert max_in_window(requests_in(arrivals), WINDOW_S) <= 60
    assert len(arrivals) == done.manifest.limits["granted_requests"] == 130


class Blocking(Recorder):
    """A sink that holds the loop up now and then, as no sink should."""

    def on(self, event: events.Event) -> None:
        super().on(event)
        if isinstance(event, events.ItemDone) and len(self.seen) % 20 == 0:
            time.sleep(0.3)


@pytest.mark.alone
async def test_a_loop_that_is_held_up_now_and_then_brings_no_window_over_its_limit(tmp_path: Path):
    told = {**SCALED, "requests_per_minute": 120, "arrival_slack": 0.2, "burst_seconds": 60.0}
    # Of so short a slack a tenth of a second is left for the way, and a busy process is later than that.
    service = ("--rpm", 120, "--tpm", 10**9, "--window", WINDOW_S, "--latency", 0.05)
    with simulated_apart(*map(str, service)) as simulator:
        state, work = SqliteState(":memory:"), job(rows(240), simulator.url, tmp_path, extra=told)
        manifest = await run(work, whole(work), state=state, observe=Blocking(), note=print)
        await state.close()
        arrivals = simulator.arrivals()
    assert manifest.counts == {Outcome.OK: 240}
    assert max_in_window(requests_in(arrivals), WINDOW_S) <= 120
    assert {arrival.status for arrival in arrivals} == {200}


async def test_what_a_run_waits_for_is_told_now_and_then(tmp_path: Path):
    with simulated() as simulator:
        work = job(rows(24), simulator.url, tmp_path, **limited(requests_per_minute=10))
        done = await dispatched(work)
    pulses = done.events.of(events.Pulse)
    assert any(pulse.waits_for.endswith("/requests_per_minute") for pulse in pulses)
    (meter,) = pulses[-1].waited_s
    assert meter.endswith("/requests_per_minute")
    assert pulses[-1].waited_s[meter] > 3
    assert all(0 <= use <= 1 for pulse in pulses for use in pulse.use.values())


async def test_the_manifest_stays_small_and_plain(tmp_path: Path):
    with simulated() as simulator:
        done = await dispatched(
            job(
                rows(3),
                simulator.url,
                tmp_path,
                **limited(requests_per_minute=60),
            )
        )
    assert json.loads(json.dumps(done.manifest.to_json()))["limits"]["late_arrivals"] == 0
