"""Routes over sockets: what goes where is judged from the arrivals at each service."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.connection import parse
from airflow_provider_llmbatch.engine.dispatch.route import read_routes
from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.job import Asked, Job
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from tests.engine.rehearsal import KEY, Recorder, Simulated, dispatched, job, rows, simulated

DOWN = {"match": {}, "reply": {"status": 503, "error": {"message": "overloaded", "type": "server_error"}}}
#: A minute of an outage in a second.
QUICK = {"park_over_s": 0.3, "probe_s": 1.0, "max_attempts": 5}


def routed(
    source: Sequence[Mapping[str, Any]],
    folder: Path,
    services: Mapping[str, Simulated],
    rules: Sequence[Mapping[str, Any]] = (),
    models: Mapping[str, str] | None = None,
    **told: Any,
) -> Job:
    """Return a job over several services, the first of which is the default."""
    first = next(iter(services))
    models = models or {}
    extra = {"arrival_slack": 0.2, **told.pop("extra", {})}
    asked = {
        name: Asked(
            connection=parse(name, host=one.url, password=KEY, extra=extra),
            model=models.get(name, "gpt-4o-mini"),
        )
        for name, one in services.items()
    }
    table = read_routes(list(services), rules)
    policy = {**QUICK, **told.pop("policy", {})}
    model = models.get(first, "gpt-4o-mini")
    return job(
        source, services[first].url, folder, model=model, routes=table, asked=asked, policy=policy, **told
    )


def sizes(short: int, long: int) -> list[dict[str, Any]]:
    texts = ["a few words"] * short + ["word " * 700] * long
    return [{"id": f"i{n}", "vars": {"text": f"{n} {text}"}} for n, text in enumerate(texts)]


async def test_the_request_chooses_where_it_goes_first(tmp_path: Path):
    rules = [{"if": "prompt_tokens >= 512", "use": "large"}]
    with simulated() as small, simulated() as large:
        work = routed(sizes(6, 4), tmp_path, {"small": small, "large": large}, rules, {"large": "gpt-4o"})
        done = await dispatched(work)
        models = [{arrival.model for arrival in one.arrivals()} for one in (small, large)]
        counts = [len(one.arrivals()) for one in (small, large)]
    assert done.outcomes == {Outcome.OK: 10}
    assert (models, counts) == ([{"gpt-4o-mini"}, {"gpt-4o"}], [6, 4])
    assert [result.endpoint for result in done.results] == [small.url] * 6 + [large.url] * 4


async def test_what_was_seen_chooses_where_this_request_goes_next(tmp_path: Path):
    odd = {"match": {"every": 2}, "reply": {"status": 500, "error": {"message": "oops"}}}
    rules = [{"from": "one", "if": "status == 500", "use": "two"}]
    with simulated(odd) as one, simulated() as two:
        done = await dispatched(routed(rows(10), tmp_path, {"one": one, "two": two}, rules))
        assert len(one.arrivals()) == 10
        assert len(two.arrivals()) == 5
    assert done.outcomes == {Outcome.OK: 10}
    fallbacks = [event for event in done.events.of(events.CallFailed) if event.advice == "Fallback"]
    assert len(fallbacks) == 5


async def test_a_throttled_request_goes_to_the_fallback_and_the_others_wait_for_nothing(tmp_path: Path):
    rules = [{"from": "one", "if": "status == 429", "use": "two"}]
    full = {
        "match": {},
        "reply": {"status": 429, "headers": {"retry-after": "30"}, "error": {"message": "slow down"}},
    }
    with simulated(full) as one, simulated() as two:
        work = routed(rows(8), tmp_path, {"one": one, "two": two}, rules, policy={"max_wait_s": 20.0})
        done = await asyncio.wait_for(dispatched(work), 30)
        throttled = len(one.arrivals())
    assert done.outcomes[Outcome.OK] >= throttled
    assert throttled <= 8


async def test_a_truncated_and_a_too_long_item_take_a_larger_model_once(tmp_path: Path):
    cut = {"match": {}, "reply": {"truncate": True}}
    rules = [{"from": "small", "if": "outcome == 'truncated' || outcome == 'too_long'", "use": "large"}]
    with simulated(cut) as small, simulated() as large:
        services = {"small": small, "large": large}
        done = await dispatched(routed(rows(3), tmp_path, services, rules, {"large": "gpt-4o"}))
        # Each is first tried once more with a larger cap.
        assert (len(small.arrivals()), len(large.arrivals())) == (6, 3)
    assert done.outcomes == {Outcome.OK: 3}
    assert {result.endpoint for result in done.results} == {large.url}


async def test_a_truncated_item_whose_larger_model_is_cut_too_stays_truncated(tmp_path: Path):
    cut = {"match": {}, "reply": {"truncate": True}}
    rules = [
        {"from": "small", "if": "outcome == 'truncated'", "use": "large"},
        {"from": "large", "if": "outcome == 'truncated'", "use": "small"},
    ]
    with simulated(cut) as small, simulated(cut) as large:
        done = await dispatched(routed(rows(2), tmp_path, {"small": small, "large": large}, rules))
    assert done.outcomes == {Outcome.TRUNCATED: 2}


async def test_an_endpoint_that_is_down_is_parked_and_the_next_one_does_the_work(tmp_path: Path):
    with simulated(DOWN, latency_s=0.05) as one, simulated(latency_s=0.02) as two:
        few = {"max_in_flight": 10}
        done = await dispatched(routed(rows(400), tmp_path, {"one": one, "two": two}, extra=few))
        down = one.arrivals()
    assert done.outcomes == {Outcome.OK: 400}
    parked = done.events.of(events.Parked)
    assert {(event.what, event.name) for event in parked} == {("endpoint", f"{one.url}/gpt-4o-mini")}
    # Only what was open when it was parked, and a call a second to try it.
    assert len(down) < 300


async def test_a_parked_endpoint_is_used_again_within_a_minute_after_it_heals(tmp_path: Path):
    with simulated(DOWN) as one, simulated(latency_s=0.05) as two:
        work = routed(rows(3000), tmp_path, {"one": one, "two": two}, extra={"max_in_flight": 20})
        running = asyncio.create_task(dispatched(work))
        while not two.arrivals():
            await asyncio.sleep(0.2)
        await asyncio.sleep(1.0)
        one.play()
        done = await running
        healed = [arrival for arrival in one.arrivals() if arrival.status == 200]
    assert done.outcomes == {Outcome.OK: 3000}
    assert len(healed) > 100
    assert [event.what for event in done.events.of(events.Reopened)] == ["endpoint"]


async def test_a_slow_endpoint_is_left_for_the_next_requests_and_no_answer_is_paid_twice(tmp_path: Path):
    rules = [{"from": "one", "if": "latency_ms > 300", "use": "two"}]
    with simulated(latency_s=0.5) as one, simulated(latency_s=0.01) as two:
        services = {"one": one, "two": two}
        work = routed(rows(300), tmp_path, services, rules, extra={"max_in_flight": 10})
        done = await dispatched(work)
        calls = [len(one.arrivals()), len(two.arrivals())]
    assert done.outcomes == {Outcome.OK: 300}
    assert sum(calls) == 300
    assert calls[1] > 100


async def test_items_outlive_an_outage_of_everything_and_are_deferred(tmp_path: Path):
    with simulated(DOWN) as one, simulated(DOWN) as two:
        services = {"one": one, "two": two}
        state = SqliteState(":memory:")
        policy = {**QUICK, "defer_after_s": 2.0}
        work = routed(rows(40), tmp_path, services, policy=policy)
        recorder = Recorder()
        manifest = await run(work, whole(work), state=state, observe=recorder, note=print)
        assert manifest.state == "stopped"
        assert manifest.retry_after_s is not None
        assert manifest.counts == {Outcome.UNSENT: 40}
        one.play()
        done = await dispatched(work, state)
        await state.close()
    assert done.outcomes == {Outcome.OK: 40}
