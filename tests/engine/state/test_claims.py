"""One suite over all stores of claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from airflow_provider_llmbatch.engine.state.claims import Claimed, Claims, Pointer
from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
from airflow_provider_llmbatch.engine.state.redis.claims import RedisClaims
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.state.sqlite.claims import SqliteClaims

HERE = Pointer(path="/results/a", chunk=3, index=17)


@pytest.fixture(params=["sqlite", "redis"])
async def claims(request: pytest.FixtureRequest) -> AsyncIterator[Claims]:
    if request.param == "sqlite":
        state = SqliteState(":memory:")
        yield SqliteClaims(state)
    else:
        server = request.getfixturevalue("redis_server")
        server.cli("flushall")
        state = RedisState(connect(server.url))
        yield RedisClaims(state)
    await state.close()


async def test_of_many_who_ask_at_once_exactly_one_wins(claims: Claims):
    asked = await asyncio.gather(*(claims.claim("q", f"task-{n}", fence=1) for n in range(20)))
    assert sum(one.won for one in asked) == 1
    assert all(0 < one.held_s <= 60 for one in asked if not one.won)


async def test_an_answer_is_handed_to_everybody_who_asks_later(claims: Claims):
    await claims.claim("q", "a", fence=1)
    await claims.answer("q", "a", HERE)
    assert await claims.claim("q", "b", fence=1) == Claimed(answer=HERE)
    assert await claims.claim("q", "a", fence=2) == Claimed(answer=HERE)


async def test_only_the_holder_can_answer_renew_or_release(claims: Claims):
    await claims.claim("q", "a", fence=1, held_s=30)
    await claims.answer("q", "b", HERE)
    await claims.release(["q"], "b")
    await claims.renew(["q"], "b", held_s=5000)
    asked = await claims.claim("q", "b", fence=1)
    assert asked.answer is None
    assert 0 < asked.held_s <= 30


async def test_a_claim_that_is_not_renewed_ends(claims: Claims):
    await claims.claim("q", "a", fence=1, held_s=0.05)
    await asyncio.sleep(0.1)
    assert (await claims.claim("q", "b", fence=1)).won


async def test_a_renewed_claim_lives_on(claims: Claims):
    await claims.claim("q", "a", fence=1, held_s=0.05)
    await claims.renew(["q"], "a", held_s=60)
    await asyncio.sleep(0.1)
    assert not (await claims.claim("q", "b", fence=1)).won


async def test_a_released_question_may_be_asked_by_the_next(claims: Claims):
    await claims.claim("q", "a", fence=1)
    await claims.release(["q"], "a")
    assert (await claims.claim("q", "b", fence=1)).won


async def test_a_new_try_of_the_same_task_takes_its_claims_over_and_an_old_one_does_not(claims: Claims):
    await claims.claim("q", "a", fence=2)
    assert (await claims.claim("q", "a", fence=3)).won
    assert not (await claims.claim("q", "a", fence=2)).won


async def test_an_answer_that_cannot_be_read_any_more_is_forgotten(claims: Claims):
    await claims.claim("q", "a", fence=1)
    await claims.answer("q", "a", HERE)
    await claims.forget("q", HERE)
    assert (await claims.claim("q", "b", fence=1)).won


async def test_a_million_claims_take_at_most_160_megabytes_of_redis(request: pytest.FixtureRequest):
    """Measured on 50,000, since what a question takes does not depend on their number."""
    server = request.getfixturevalue("redis_server")
    server.cli("flushall")
    state = RedisState(connect(server.url))
    claims = RedisClaims(state)
    before = int((await state.command("INFO", "memory"))["used_memory"])
    for start in range(0, 50_000, 500):
        questions = [f"{number:064x}" for number in range(start, start + 500)]
        await asyncio.gather(*(claims.claim(question, "task", fence=1) for question in questions))
    grown = int((await state.command("INFO", "memory"))["used_memory"]) - before
    await state.close()
    assert grown / 50_000 * 1_000_000 <= 160_000_000


async def test_who_only_looks_claims_nothing_and_sees_answers_alone(claims: Claims):
    assert await claims.look("q") is None
    assert (await claims.claim("q", "a", fence=1)).won
    assert await claims.look("q") is None
    await claims.answer("q", "a", HERE)
    assert await claims.look("q") == HERE
    await claims.claim("short", "a", fence=1)
    await claims.answer("short", "a", HERE, kept_s=0.05)
    await asyncio.sleep(0.1)
    assert await claims.look("short") is None


async def test_answers_in_a_deleted_folder_are_forgotten_and_no_others(claims: Claims):
    elsewhere = Pointer(path="/results/b", chunk=0, index=0)
    for question, pointer in (("q", HERE), ("r", HERE), ("kept", elsewhere)):
        await claims.claim(question, "a", fence=1)
        await claims.answer(question, "a", pointer)
    await claims.forget_folder(HERE.path)
    assert [await claims.look(question) for question in ("q", "r", "kept")] == [None, None, elsewhere]
    assert (await claims.claim("q", "b", fence=1)).won


async def test_an_answer_whose_folder_redis_has_thrown_away_is_asked_for_again(redis_server):
    redis_server.cli("flushall")
    state, other = (RedisState(connect(redis_server.url)) for _ in range(2))
    await RedisClaims(state).claim("q", "a", fence=1)
    await RedisClaims(state).answer("q", "a", HERE)
    (path,) = redis_server.cli("keys", "llmbatch:v1:path:*").splitlines()
    redis_server.cli("del", path)
    assert (await RedisClaims(other).claim("q", "b", fence=1)).won
    await state.close()
    await other.close()
