"""Put the dispatcher of one run together: lanes, router, check."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from airflow_provider_llmbatch.engine.dispatch.beat import Beat
from airflow_provider_llmbatch.engine.dispatch.dispatcher import Dispatcher
from airflow_provider_llmbatch.engine.dispatch.fail_fast import FailFast
from airflow_provider_llmbatch.engine.dispatch.lanes import Lanes
from airflow_provider_llmbatch.engine.dispatch.pursue import Pursuer
from airflow_provider_llmbatch.engine.dispatch.redact import Redactor
from airflow_provider_llmbatch.engine.dispatch.reuse import Reuse
from airflow_provider_llmbatch.engine.dispatch.router import Router
from airflow_provider_llmbatch.engine.dispatch.table import Table
from airflow_provider_llmbatch.engine.job import Job, Tools
from airflow_provider_llmbatch.engine.lane import LaneOpener
from airflow_provider_llmbatch.engine.observe.events import Observer
from airflow_provider_llmbatch.engine.pinning import pinned
from airflow_provider_llmbatch.engine.results.store import ResultStore
from airflow_provider_llmbatch.engine.state.protocols import State
from airflow_provider_llmbatch.engine.state.routing import Pins
from airflow_provider_llmbatch.engine.validate.check import check
from airflow_provider_llmbatch.engine.validate.repair import reask


class Assembled(NamedTuple):
    """What a run is carried out by."""

    dispatcher: Dispatcher
    lanes: Lanes
    router: Router
    pursuer: Pursuer


@asynccontextmanager
async def assemble(
    job: Job,
    kits: Mapping[str, Tools],
    store: ResultStore,
    state: State,
    fence: int,
    observe: Observer,
    reuse: Reuse | None = None,
    pins: Pins | None = None,
) -> AsyncIterator[Assembled]:
    """
    Yield what is ready to run.

    :param kits: tools by endpoint.
    :param fence: number of the try.
    :param pins: where people want calls to go; None follows the routes alone.
    """
    secrets = [text for name in kits for text in job.at(name).connection.secrets()]
    dispatcher = Dispatcher(
        store=store,
        fail_fast=FailFast(job.policy.fail_fast),
        run=job.run,
        observe=observe,
        clocks=job.clocks,
        reuse=reuse,
    )
    table = Table(job.table)
    async with AsyncExitStack() as stack:
        opener = LaneOpener(job, kits, store, state, fence, Redactor(secrets), stack)
        lanes = opener.lanes = Lanes(
            await opener.open_all(),
            instead=table.instead,
            health=state,
            stop=dispatcher.stop,
            reopen=opener.reopen,
            observe=observe,
            now=job.clocks.now,
            wall=job.clocks.wall,
        )
        stack.push_async_callback(lanes.close)
        composers = {name: kit.composer for name, kit in kits.items()}
        router = Router(table, lanes, composers, job.clocks)
        pursuer = _pursuer(job, router, lanes, dispatcher, observe, reuse)
        beat = _beat(job, router, lanes, dispatcher, observe, state)
        async with pinned(pins, table, lanes, observe), _beating(beat):
            yield Assembled(dispatcher, lanes, router, pursuer)


@asynccontextmanager
async def _beating(beat: Beat) -> AsyncIterator[None]:
    task = asyncio.create_task(beat.go_on())
    try:
        yield
        await beat.tell()
    finally:
        task.cancel()


def _beat(
    job: Job, router: Router, lanes: Lanes, dispatcher: Dispatcher, observe: Observer, state: State
) -> Beat:
    return Beat(
        lanes=lanes,
        router=router,
        latencies=state if job.table.read_latency else None,
        room_has_changed=dispatcher.room_has_changed,
        observe=observe,
        now=job.clocks.now,
        policy=job.policy,
        stop=dispatcher.stop,
    )


def _pursuer(
    job: Job,
    router: Router,
    lanes: Lanes,
    dispatcher: Dispatcher,
    observe: Observer,
    reuse: Reuse | None,
) -> Pursuer:
    return Pursuer(
        router=router,
        lanes=lanes,
        check=functools.partial(check, job.schema),
        reask=reask,
        policy=job.policy,
        run=job.run,
        observe=observe,
        clocks=job.clocks,
        stop=dispatcher.stop,
        recall=reuse.recall if reuse else None,
    )
