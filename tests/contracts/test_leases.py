"""How long calls that nobody settles count as open, in every implementation of the shared limits."""

from __future__ import annotations

import asyncio
import time

from airflow_provider_llmbatch.engine.dispatch.limit.limiter import Limiter
from tests.contracts.states import Store, needs, scope, take


async def test_the_calls_of_an_owner_that_gives_no_sign_of_life_are_soon_free(store: Store):
    """A worker that died holds nobody up until its call would have timed out."""
    silent, other = (scope(max_in_flight=2, life_s=0.5, owner=name) for name in ("silent", "other"))
    assert len((await take(store, silent, 2)).grants) == 2
    await store.pass_time(0.3)
    await store.state.take(silent, ())
    await store.pass_time(0.3)
    assert (await take(store, other, 1)).waits_for == "in_flight"
    await store.pass_time(0.3)
    assert len((await take(store, other, 1)).grants) == 1
    # It was only frozen, and what it had sent is open again.
    await store.state.take(silent, ())
    assert (await take(store, other, 1)).waits_for == "in_flight"


async def test_a_long_call_stays_open_while_its_task_lives_and_has_nothing_else_to_ask(store: Store):
    mine, other = (scope(max_in_flight=1, life_s=1.0, owner=name) for name in ("mine", "other"))
    async with Limiter(store.state, mine, now=time.monotonic) as limiter:
        await limiter.acquire(needs(1)[0])
        for _ in range(3):
            await asyncio.sleep(0.4)
            await store.pass_time(0.4)
            assert (await take(store, other, 1)).waits_for == "in_flight"
