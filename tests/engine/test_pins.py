"""A route that a person has pinned, over sockets: what goes where is judged from the arrivals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.dispatch.route import read_routes
from airflow_provider_llmbatch.engine.dispatch.table import Table
from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.state.sqlite.routing import SqliteRouting
from airflow_provider_llmbatch.engine.summary import Manifest
from tests.engine.rehearsal import Recorder, Simulated, rows, simulated
from tests.engine.test_routes import DOWN, QUICK, routed


@pytest.fixture
async def state() -> AsyncIterator[SqliteState]:
    opened = SqliteState(":memory:")
    yield opened
    await opened.close()


def gate(one: Simulated) -> str:
    return f"endpoint/{one.url}/gpt-4o-mini"


async def dispatched(work: Job, state: SqliteState) -> tuple[Manifest, Recorder]:
    recorder = Recorder()
    manifest = await run(
        work, whole(work), state=state, observe=recorder, note=print, pins=SqliteRouting(state)
    )
    return manifest, recorder


async def test_a_run_that_begins_sends_all_to_what_is_pinned_whatever_the_rules_say(
    tmp_path: Path, state: SqliteState
):
    rules = [{"if": "prompt_tokens > 0", "use": "one"}]
    with simulated() as one, simulated() as two, simulated() as elsewhere:
        routing = SqliteRouting(state)
        await routing.pin(gate(two), by="ann")
        # A pin of what the table does not have is not for this run, though it is the latest.
        await routing.pin(gate(elsewhere), by="ben")
        manifest, told = await dispatched(routed(rows(8), tmp_path, {"one": one, "two": two}, rules), state)
        counts = [len(each.arrivals()) for each in (one, two, elsewhere)]
    assert manifest.counts == {Outcome.OK: 8}
    assert counts == [0, 8, 0]
    assert told.of(events.Pinned) == [events.Pinned(route="two", by="ann")]
    offered = {one.gate for one in await routing.conditions() if one.offered}
    assert offered == {gate(one), gate(two)}


async def test_a_run_under_way_heeds_a_pin_and_its_end(tmp_path: Path, state: SqliteState):
    slow = {"max_in_flight": 2}
    with simulated(latency_s=0.25) as one, simulated(latency_s=0.25) as two:
        work = routed(rows(40), tmp_path, {"one": one, "two": two}, extra=slow)
        routing = SqliteRouting(state)
        running = asyncio.create_task(dispatched(work, state))
        while not one.arrivals():
            await asyncio.sleep(0.05)
        await routing.pin(gate(two), by="ann")
        while not two.arrivals():
            await asyncio.sleep(0.05)
        left = len(one.arrivals())
        await routing.unpin(gate(two))
        manifest, told = await running
        at_one, at_two = one.arrivals(), two.arrivals()
        after = [each for each in at_one[left:] if each.time < at_two[-1].time]
    assert manifest.counts == {Outcome.OK: 40}
    # What was in flight when it was heeded; not what waited for a slot or a grant there.
    assert len(after) <= 2
    assert len(at_two) >= 8
    assert [event.route for event in told.of(events.Pinned)] == ["two", None]
    assert left < len(at_one)


async def test_nothing_is_sent_elsewhere_while_what_is_pinned_is_down(tmp_path: Path, state: SqliteState):
    with simulated() as one, simulated(DOWN) as two:
        await SqliteRouting(state).pin(gate(two), by="ann")
        policy = {**QUICK, "defer_after_s": 2.0}
        manifest, _ = await dispatched(
            routed(rows(10), tmp_path, {"one": one, "two": two}, policy=policy), state
        )
        assert manifest.state == "stopped"
        assert manifest.retry_after_s is not None
        assert manifest.counts == {Outcome.UNSENT: 10}
        assert (len(one.arrivals()), bool(two.arrivals())) == (0, True)


def test_a_pinned_table_leads_only_what_is_too_long_elsewhere():
    rules = [
        {"from": "small", "if": "outcome == 'too_long' || status == 503", "use": "large"},
        {"from": "large", "if": "status == 503", "use": "small"},
    ]
    table = Table(read_routes(["small", "large", "spare"], rules))
    long = {"outcome": "too_long", "status": 0, "kind": "", "code": "", "attempts": 1}
    down = {**long, "outcome": "", "status": 503}
    request = {"prompt_tokens": 9, "output_tokens": 9, "group": "", "variant": ""}
    table.pin = "small"
    assert table.first(request) == "small"
    assert table.after("small", down, request, {"small"}) is None
    assert table.after("small", long, request, {"small"}) == "large"
    assert list(table.instead("small")) == []
    # What would leave another endpoint goes to the pinned one, wherever the rule leads.
    table.pin = "spare"
    assert table.after("large", down, request, {"large"}) == "spare"
    assert table.after("large", {**down, "status": 200}, request, {"large"}) is None
