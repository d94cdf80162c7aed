"""One suite over all stores of stops."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
from airflow_provider_llmbatch.engine.state.redis.stops import RedisStops
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.state.sqlite.stops import SqliteStops
from airflow_provider_llmbatch.engine.state.stops import KEPT_S, Stops

RUN, OTHER = "d/manual__1", "d/manual__2"


@pytest.fixture(params=["sqlite", "redis"])
async def stops(request: pytest.FixtureRequest) -> AsyncIterator[Stops]:
    if request.param == "sqlite":
        state = SqliteState(":memory:")
        yield SqliteStops(state)
    else:
        server = request.getfixturevalue("redis_server")
        server.cli("flushall")
        state = RedisState(connect(server.url))
        yield RedisStops(state)
    await state.close()


async def test_nothing_stops_a_run_that_nobody_wants_to_stop(stops: Stops):
    await stops.ask(OTHER, by="ann", why="")
    assert await stops.asked(RUN) is None
    assert await stops.heed(RUN, "a", "a/0") is None


async def test_every_task_of_a_run_learns_who_stops_it_and_why_whenever_it_asks(stops: Stops):
    began = time.time()
    await stops.ask(RUN, by="ann", why="wrong prompt")
    found = [await stops.heed(RUN, owner, f"{owner}/0") for owner in ("a", "b", "a")]
    assert [(one.by, one.why) for one in found if one] == [("ann", "wrong prompt")] * 3
    assert all(one and began - 1 <= one.at <= time.time() for one in found)
    assert await stops.asked(RUN) == found[0]


async def test_once_a_task_that_has_heeded_it_is_cleared_the_run_goes_on(stops: Stops):
    await stops.ask(RUN, by="ann", why="")
    assert await stops.heed(RUN, "a", "a/0")
    assert await stops.heed(RUN, "a", "a/2") is None
    assert await stops.heed(RUN, "b", "b/0") is None
    assert await stops.asked(RUN) is None


async def test_a_task_that_was_cleared_before_it_heeded_is_stopped_like_any_other(stops: Stops):
    await stops.ask(RUN, by="ann", why="")
    assert await stops.heed(RUN, "a", "a/2")


async def test_a_second_stop_is_heeded_anew_by_those_who_were_cleared_since_the_first(stops: Stops):
    await stops.ask(RUN, by="ann", why="")
    await stops.heed(RUN, "a", "a/0")
    await stops.ask(RUN, by="bob", why="again")
    again = await stops.heed(RUN, "a", "a/2")
    assert again is not None
    assert again.by == "bob"


async def test_a_stop_that_is_lifted_holds_for_nobody(stops: Stops):
    await stops.ask(RUN, by="ann", why="")
    await stops.heed(RUN, "a", "a/0")
    await stops.lift(RUN)
    assert await stops.heed(RUN, "a", "a/0") is None
    await stops.lift(RUN)


async def test_a_stop_is_forgotten_after_two_weeks(request: pytest.FixtureRequest):
    moment = [1_800_000_000.0]
    state = SqliteState(":memory:", now=lambda: moment[0])
    stops = SqliteStops(state)
    await stops.ask(RUN, by="ann", why="")
    moment[0] += KEPT_S + 1
    assert await stops.asked(RUN) is None
    assert await stops.heed(RUN, "a", "a/0") is None
    await state.close()

    server = request.getfixturevalue("redis_server")
    server.cli("flushall")
    kept = RedisState(connect(server.url))
    await RedisStops(kept).ask(RUN, by="ann", why="")
    (key,) = await kept.command("KEYS", "*:stop:*")
    assert KEPT_S - 60 < await kept.command("TTL", key) <= KEPT_S
    await kept.close()
