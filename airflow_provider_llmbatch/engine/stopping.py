"""Join stops and the dispatcher: a run that somebody wants to stop ends in good order, and goes on later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from airflow_provider_llmbatch.engine.dispatch.dispatcher import Dispatcher
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.state.stops import Stops
from airflow_provider_llmbatch.errors import StoppedError, StoreError

#: Seconds after which it is asked again.
EVERY_S = 2.0


async def heeding(
    stops: Stops | None, job: Job, dispatcher: Dispatcher, dispatch: Callable[[], Awaitable[None]]
) -> None:
    """
    Dispatch, unless somebody wants the run to stop, and until somebody does.

    :param stops: which runs shall stop; None dispatches to the end.
    :param dispatch: has the dispatcher do its work.
    """
    if stops is None:
        await dispatch()
        return
    dispatcher.stopped = await _look(stops, job)
    if dispatcher.stopped is not None:
        return
    watch = asyncio.create_task(_watch(stops, job, dispatcher))
    try:
        await dispatch()
    finally:
        watch.cancel()


async def _watch(stops: Stops, job: Job, dispatcher: Dispatcher) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        if (why := await _look(stops, job)) is not None:
            dispatcher.stop(why)
            return


async def _look(stops: Stops, job: Job) -> StoppedError | None:
    """Return what stops the run; nothing does while the state is away, and nothing is sent then either."""
    with contextlib.suppress(StoreError):
        stop = await stops.heed(job.run_key, job.owner, job.occasion or "")
        if stop is not None:
            why = f": {stop.why.rstrip('.')}" if stop.why else ""
            return StoppedError(f"{stop.by} stopped the run{why}.", retryable=False)
    return None
