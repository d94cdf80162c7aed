"""What the processes of :mod:`.test_limits_processes` do; importable by a fresh interpreter."""

from __future__ import annotations

import asyncio
import time
from multiprocessing.queues import Queue

from airflow_provider_llmbatch.engine.state.protocols import Scope, Settlement
from tests.contracts.states import needs, opened


def take_until_refused(address: str, scope: Scope, grants: Queue[list[float]]) -> None:
    """Take one by one until nothing is left, and report when grants were given."""
    grants.put(asyncio.run(_take_until_refused(address, scope)))


async def _take_until_refused(address: str, scope: Scope) -> list[float]:
    state, given = opened(address), []
    while True:
        taken = await state.take(scope, needs(1))
        if taken.waits_for not in ("", "turn"):
            break
        given += [grant.at for grant in taken.grants]
        await asyncio.sleep(taken.wait_s)
    await state.close()
    return given


def take_for(address: str, scope: Scope, seconds: float, grants: Queue[list[float]]) -> None:
    """Take as much as there is for some seconds, as a limiter with work waiting does."""
    grants.put(asyncio.run(_take_for(address, scope, seconds)))


async def _take_for(address: str, scope: Scope, seconds: float) -> list[float]:
    state, given, settled = opened(address), [], []
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        taken = await state.take(scope, needs(8), settled)
        given += [grant.at for grant in taken.grants]
        settled = [Settlement(grant=grant, tokens=1) for grant in taken.grants]
        await asyncio.sleep(min(taken.wait_s, 1.0))
    await state.close()
    return given


def take_and_hang(address: str, scope: Scope, count: int, grants: Queue[list[float]]) -> None:
    """Take, tell, and never come back."""
    taken = asyncio.run(opened(address).take(scope, needs(count)))
    grants.put([grant.at for grant in taken.grants])
    time.sleep(600)
