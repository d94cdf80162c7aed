"""Send what an operator itself wants to ask: under limits, budgets and retries like everything else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from airflow_provider_llmbatch.operators import surroundings
from airflow_provider_llmbatch.operators.observers import observing

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.job import Job
    from airflow_provider_llmbatch.engine.observe.log import Log
    from airflow_provider_llmbatch.engine.summary import Manifest
    from airflow_provider_llmbatch.operators.bridge import Bridge
    from airflow_provider_llmbatch.settings import Settings


def send(
    job: Job,
    count: int,
    settings: Settings,
    log: Log,
    bridge: Bridge[Manifest],
    *,
    timeout_s: float | None = None,
) -> Manifest:
    """
    Dispatch all items of a job, and return the account.

    :param count: how many items it has.
    :param bridge: through which it can be cancelled.
    :param timeout_s: seconds that it may take; None waits as long as the job's policy does.
    :raises TimeoutError: when they are over; what was answered is stored.
    """
    from airflow_provider_llmbatch.engine.run import run, whole

    async def main() -> Manifest:
        state = surroundings.open_state(settings)
        stops = surroundings.open_stops(state)
        try:
            with observing(job, count, settings, log) as observe:
                async with asyncio.timeout(timeout_s):
                    return await run(
                        job, whole(job), state=state, observe=observe, note=log.info, stops=stops
                    )
        finally:
            await state.close()

    return bridge.run(main)
