"""Losing the shared store costs time, never a window over its limit: design.md, invariant 6."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.state.patient import PatientState
from airflow_provider_llmbatch.engine.state.protocols import Need, Scope, Settlement
from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
from airflow_provider_llmbatch.errors import StateUnreachableError
from airflow_provider_llmbatch.simulator.arrivals import max_in_window
from tests.services.redis_server import Server, running


async def drain(state: RedisState, scope: Scope, seconds: float) -> list[tuple[float, int]]:
    """Take one request after the other for a while, and return when each was granted."""
    granted, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            taken = await state.take(scope, [Need(tokens=1)])
        except StateUnreachableError:
            await asyncio.sleep(0.02)
            continue
        granted += [(grant.at, 1) for grant in taken.grants]
        if not taken.grants:
            await asyncio.sleep(min(taken.wait_s, max(0.0, until - time.monotonic())))
    return granted


async def test_a_flushed_server_starts_with_full_windows_for_those_who_knew_it(
    redis_server: Server, scope_of
):
    state, scope = RedisState(connect(redis_server.url)), scope_of(requests=20, window_s=2.0, slack_s=0.1)
    before = await drain(state, scope, 1.2)
    redis_server.cli("flushall")
    after = await drain(state, scope, 4.5)
    await state.close()
    assert max_in_window(before + after, 2.1) <= 20
    lost_at = after[0][0]
    assert lost_at - before[-1][0] >= 1.9, "the window was not taken for full"
    assert sum(1 for at, _ in after if at < lost_at + 2.1) >= 18, "not back to the full rate after one window"


async def test_a_newcomer_after_a_loss_does_not_hide_it_from_those_who_knew_better(
    redis_server: Server, scope_of
):
    old, new = RedisState(connect(redis_server.url)), RedisState(connect(redis_server.url))
    scope, other = scope_of("old"), scope_of("new")
    before = await drain(old, scope, 1.0)
    redis_server.cli("flushall")
    first = await new.take(other, [Need(tokens=1)])
    told = await old.take(scope, [Need(tokens=1)])
    taken = await old.take(scope, [Need(tokens=1)])
    await asyncio.gather(old.close(), new.close())
    assert len(before) > 10
    assert len(first.grants) == 1
    assert (told.lost, told.grants) == (True, ())
    assert not taken.grants
    assert taken.wait_s > 1.5


async def test_a_run_that_knows_from_its_ledger_that_it_has_just_sent_starts_with_full_windows(
    redis_server: Server, scope_of
):
    state = RedisState(connect(redis_server.url), recent=True)
    taken = await state.take(scope_of(), [Need(tokens=1)])
    await state.close()
    assert not taken.grants
    assert taken.wait_s > 1.5


async def test_a_window_of_a_day_starts_evenly_used_after_a_loss(redis_server: Server, scope_of):
    state = RedisState(connect(redis_server.url), recent=True)
    scope = scope_of(requests=24_000, tokens=24_000_000, window_s=86_400.0, slack_s=2.0)
    taken = await state.take(scope, [Need(tokens=1)])
    await state.close()
    assert not taken.grants
    assert taken.wait_s < 800, "a whole day was taken for lost"


async def test_a_server_restarted_with_its_data_is_debited_two_seconds(tmp_path: Path, scope_of):
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        state, scope = RedisState(connect(server.url)), scope_of(requests=40, window_s=8.0, slack_s=0.1)
        await state.take(scope, [Need(tokens=1)])
        before = (await state.levels(scope))[0].used
        server.kill()
        with pytest.raises(StateUnreachableError):
            await state.take(scope, [Need(tokens=1)])
        restarted = time.monotonic()
        server.start()
        while True:
            try:
                taken = await state.take(scope, [Need(tokens=1)])
            except StateUnreachableError:
                continue
            if taken.grants:
                break
            await asyncio.sleep(taken.wait_s)
        back_s = time.monotonic() - restarted
        after = (await state.levels(scope))[0].used
        await state.close()
    assert before == 1
    assert after == 2 + 10, "two seconds of 40 requests in 8.1 s are ten"
    assert back_s < 10


async def test_while_the_server_is_away_every_call_says_so_and_grants_nothing(tmp_path: Path, scope_of):
    """P03."""
    with running(tmp_path) as server:
        state = RedisState(connect(server.url))
        await state.take(scope_of(), [Need(tokens=1)])
    with pytest.raises(StateUnreachableError, match="cannot be reached"):
        await state.take(scope_of(), [Need(tokens=1)])
    await state.close()


async def test_a_take_whose_answer_never_came_is_given_back_with_the_next(tmp_path: Path, scope_of):
    with running(tmp_path) as server:
        scope = scope_of()
        state = RedisState(connect(server.url))
        await state.take(scope, [])
        # The server carries the take out while nobody waits for the answer any more.
        lost = asyncio.create_task(state.take(scope, [Need(tokens=500)] * 3))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        server.cli("client", "pause", "200", "all")
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        await asyncio.sleep(0.3)
        taken = await state.take(scope, [Need(tokens=1)])
        levels = {level.key: level.used for level in await state.levels(scope)}
        await state.close()
    assert len(taken.grants) == 1
    assert levels == {"m/requests": 1, "m/tokens": 1}


async def test_nobody_notices_when_scripts_are_flushed_or_evalsha_is_refused(redis_server: Server, scope_of):
    scope = scope_of()
    state = RedisState(connect(redis_server.url))
    first = await state.take(scope, [Need(tokens=1)])
    redis_server.cli("script", "flush")
    second = await state.take(scope, [Need(tokens=1)], [Settlement(grant=first.grants[0], tokens=1)])
    redis_server.cli("acl", "setuser", "plain", "on", ">pw", "~*", "&*", "+@all", "-evalsha")
    limited = RedisState(connect(redis_server.url.replace("//", "//plain:pw@")))
    third = await limited.take(scope, [Need(tokens=1)])
    await asyncio.gather(state.close(), limited.close())
    assert [len(taken.grants) for taken in (first, second, third)] == [1, 1, 1]


async def test_budgets_are_rebuilt_before_anything_is_granted_again(redis_server: Server, scope_of):
    told: list[object] = []
    state = PatientState(
        RedisState(connect(redis_server.url)),
        Listener(told),
        spent=lambda scope: {"budget/x": 95},
        now=time.monotonic,
    )
    scope = scope_of(requests=1000, window_s=0.5, usd=100)
    first = await state.take(scope, [Need(tokens=1, micro_usd=10)])
    redis_server.cli("flushall")
    await asyncio.sleep(0.7)
    second = await state.take(scope, [Need(tokens=1, micro_usd=10)])
    await state.close()
    assert len(first.grants) == 1
    assert (second.grants, second.refused, second.waits_for) == ((), True, "budget/x")
    assert [type(event).__name__ for event in told] == ["StateLost"]


class Listener:
    """Keeps what it is told."""

    def __init__(self, told: list[object]) -> None:
        self._told = told

    def on(self, event: object) -> None:
        self._told.append(event)
