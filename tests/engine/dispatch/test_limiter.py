"""The queue of one process in front of the shared limits, over a real state."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.dispatch.limit.limiter import (
    Granted,
    Limiter,
    LimitRefusedError,
    WaitedTooLongError,
)
from airflow_provider_llmbatch.engine.state.protocols import Need, Scope, Settlement
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.errors import StaleFenceError, StoppedError
from tests.contracts.states import dollars, needs, requests, scope, tokens

NEED = Need(tokens=10, micro_usd=10)


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[SqliteState]:
    opened = SqliteState(tmp_path / "state.db")
    yield opened
    await opened.close()


def limiter(state: SqliteState, of: Scope) -> Limiter:
    return Limiter(state, of, now=time.monotonic)


async def used(state: SqliteState, of: Scope) -> dict[str, int]:
    return {level.key: level.used for level in await state.levels(of)}


async def until(there) -> None:
    """Wait until something is so; a bug is a time-out."""
    async with asyncio.timeout(10):
        while not there():
            await asyncio.sleep(0.005)


async def test_everybody_who_fits_gets_a_grant_and_the_rest_waits_for_the_window(state: SqliteState):
    limited = scope(requests(5, window_s=0.5, slack_s=0.05))
    async with limiter(state, limited) as queue:
        began = time.monotonic()
        grants = await asyncio.gather(*(queue.acquire(NEED) for _ in range(12)))
        assert time.monotonic() - began > 1.1
        assert len({granted.grant.id for granted in grants}) == 12
        assert (queue.granted_requests, queue.granted_tokens) == (12, 120)
        assert 0.9 < queue.waited_s["a/requests"] < 2.0
        assert queue.waits_for == ""


async def test_the_head_of_the_line_is_never_overtaken(state: SqliteState):
    limited = scope(tokens(100, window_s=0.3, slack_s=0.05))
    order: list[int] = []

    async def ask(queue: Limiter, size: int) -> None:
        await queue.acquire(Need(tokens=size))
        order.append(size)

    async with limiter(state, limited) as queue, asyncio.TaskGroup() as group:
        for size in (60, 90, 5, 6):
            group.create_task(ask(queue, size))
            await asyncio.sleep(0)
    assert order == [60, 90, 5, 6]


async def test_a_grant_is_dated_from_before_it_was_asked_for(state: SqliteState):
    async with limiter(state, scope()) as queue:
        before = time.monotonic()
        granted = await queue.acquire(NEED)
        assert before <= granted.taken_at <= time.monotonic()


async def test_what_never_left_is_given_back_and_not_counted_as_granted(state: SqliteState):
    limited = scope(requests(5), max_in_flight=1)
    async with limiter(state, limited) as queue:
        first = await queue.acquire(NEED)
        queue.settle(Settlement(grant=first.grant, sent=False))
        await queue.acquire(NEED)
        assert (queue.granted_requests, queue.granted_tokens) == (1, 10)
    assert await used(state, limited) == {"a/requests": 1}


async def test_who_stops_waiting_leaves_no_grant_behind(state: SqliteState):
    limited = scope(requests(1, window_s=0.3, slack_s=0.05))
    async with limiter(state, limited) as queue:
        await queue.acquire(NEED)
        waiting = [asyncio.create_task(queue.acquire(NEED)) for _ in range(2)]
        await until(lambda: queue.waits_for == "a/requests")
        waiting[0].cancel()
        assert isinstance(await waiting[1], Granted)
        assert queue.granted_requests == 2
    assert await used(state, limited) == {"a/requests": 1}


async def test_a_call_that_ends_makes_room_at_once(state: SqliteState):
    async with limiter(state, scope(max_in_flight=1)) as queue:
        first = await queue.acquire(NEED)
        second = asyncio.create_task(queue.acquire(NEED))
        await until(lambda: queue.waits_for == "in_flight")
        queue.settle(Settlement(grant=first.grant, tokens=1))
        async with asyncio.timeout(0.5):
            await second


async def test_settlements_reach_the_state_without_anybody_asking(state: SqliteState):
    limited = scope(dollars(100))
    async with limiter(state, limited) as queue:
        granted = await queue.acquire(NEED)
        queue.settle(Settlement(grant=granted.grant, tokens=1, micro_usd=3))
        for _ in range(100):
            await asyncio.sleep(0.02)
            if (await used(state, limited))["budget/dag/run/task"] == 3:
                return
    raise AssertionError("the settlement was not written within two seconds")


async def test_a_step_under_way_at_the_end_settles_once(state: SqliteState, tmp_path: Path):
    limited = scope(tokens(1000, counts="used"), dollars(100))
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
        async with limiter(state, limited) as queue:
            granted = await queue.acquire(Need(tokens=100, micro_usd=30))
            # Another process is in the middle of its own step, so that ours has to wait.
            other.execute("BEGIN IMMEDIATE")
            queue.settle(Settlement(grant=granted.grant, tokens=90, micro_usd=20))
            stuck = asyncio.create_task(queue.acquire(NEED))
            await asyncio.sleep(0.05)
            stuck.cancel()
            asyncio.get_running_loop().call_later(0.2, other.execute, "COMMIT")
    assert await used(state, limited) == {"a/tokens": 90, "budget/dag/run/task": 20}
    assert len((await state.take(scope(max_in_flight=1), needs(1))).grants) == 1


async def test_what_a_stale_try_settles_counts_once(state: SqliteState):
    limited = scope(tokens(1000, counts="used"), owner="task", fence=await state.next("task"))
    async with limiter(state, limited) as queue:
        granted = await queue.acquire(Need(tokens=100))
        await state.next("task")
        queue.settle(Settlement(grant=granted.grant, tokens=90))
        with pytest.raises(StaleFenceError):
            await queue.acquire(NEED)
        with pytest.raises(StaleFenceError):
            await queue.acquire(NEED)
    assert await used(state, limited) == {"a/tokens": 90}


async def test_a_request_that_left_late_is_counted_again(state: SqliteState):
    limited = scope(requests(10))
    async with limiter(state, limited) as queue:
        granted = await queue.acquire(NEED)
        queue.late(granted)
        queue.settle(Settlement(grant=granted.grant, tokens=1))
        await queue.acquire(NEED)
        assert (queue.late_arrivals, queue.granted_requests) == (1, 2)
    assert await used(state, limited) == {"a/requests": 3}


async def test_what_will_never_fit_is_refused_and_the_others_go_on(state: SqliteState):
    async with limiter(state, scope(tokens(100))) as queue:
        large, small = (asyncio.create_task(queue.acquire(Need(tokens=size))) for size in (101, 100))
        with pytest.raises(LimitRefusedError, match="a/tokens") as refused:
            await large
        assert refused.value.meter == "a/tokens"
        assert isinstance(await small, Granted)


async def test_waiting_ends_when_its_time_is_up(state: SqliteState):
    async with limiter(state, scope(requests(1, window_s=60.0))) as queue:
        await queue.acquire(NEED)
        began = time.monotonic()
        with pytest.raises(WaitedTooLongError, match="a/requests"):
            await queue.acquire(NEED, until=began + 0.3)
        assert 0.3 <= time.monotonic() - began < 2.0


async def test_once_stopped_nobody_gets_anything(state: SqliteState):
    stop = StoppedError("enough", retryable=False)
    async with limiter(state, scope(requests(1, window_s=60.0))) as queue:
        granted = await queue.acquire(NEED)
        waiting = asyncio.create_task(queue.acquire(NEED))
        await until(lambda: queue.waits_for != "")
        queue.refuse_all(stop)
        for asking in (waiting, queue.acquire(NEED)):
            with pytest.raises(StoppedError, match="enough"):
                await asking
        # What is open is still settled.
        queue.settle(Settlement(grant=granted.grant, sent=False))
    assert await used(state, scope(requests(1, window_s=60.0))) == {"a/requests": 0}


async def test_a_long_wait_keeps_its_place_although_newcomers_ring(state: SqliteState):
    large = scope(tokens(100, window_s=4.0, slack_s=0.1), owner="large")
    small = scope(tokens(100, window_s=4.0, slack_s=0.1), owner="small")
    await state.take(small, needs(10))
    async with limiter(state, large) as queue:
        waiting = [asyncio.create_task(queue.acquire(Need(tokens=90)))]
        await until(lambda: queue.waits_for == "a/tokens")
        for _ in range(8):
            await asyncio.sleep(0.3)
            waiting.append(asyncio.create_task(queue.acquire(Need(tokens=1))))
            assert (await state.take(small, needs(1))).waits_for == "turn"
        async with asyncio.timeout(5):
            await waiting[0]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
