"""Put the dispatcher of one run together: connection, limiter, wire, check."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from airflow_provider_llmbatch.engine.dispatch.attempt import Attempts, Endpoint
from airflow_provider_llmbatch.engine.dispatch.beat import Beat
from airflow_provider_llmbatch.engine.dispatch.call import Caller, Target, most_connections, open_transport
from airflow_provider_llmbatch.engine.dispatch.dispatcher import Dispatcher
from airflow_provider_llmbatch.engine.dispatch.fail_fast import FailFast
from airflow_provider_llmbatch.engine.dispatch.limit.concurrency import Pace
from airflow_provider_llmbatch.engine.dispatch.limit.limiter import Limiter
from airflow_provider_llmbatch.engine.dispatch.pursue import Pursuer
from airflow_provider_llmbatch.engine.dispatch.redact import Redactor
from airflow_provider_llmbatch.engine.dispatch.reuse import Reuse
from airflow_provider_llmbatch.engine.dispatch.slots import Slots
from airflow_provider_llmbatch.engine.dispatch.wire import chat
from airflow_provider_llmbatch.engine.job import Job, Tools
from airflow_provider_llmbatch.engine.observe.events import Observer
from airflow_provider_llmbatch.engine.results.store import ResultStore
from airflow_provider_llmbatch.engine.state.protocols import Scope, State
from airflow_provider_llmbatch.engine.validate.check import check
from airflow_provider_llmbatch.engine.validate.repair import reask

#: Headers of every call; only encodings that the reader undoes are accepted.
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
}


@asynccontextmanager
async def assemble(
    job: Job,
    kit: Tools,
    store: ResultStore,
    state: State,
    limits: Scope,
    observe: Observer,
    reuse: Reuse | None = None,
) -> AsyncIterator[tuple[Dispatcher, Pursuer, Limiter]]:
    """Yield a dispatcher that is ready to run, who brings its items to their ends, and their limiter."""
    most = min(limits.max_in_flight, job.connection.concurrency or limits.max_in_flight, most_connections())
    redactor = Redactor(job.connection.secrets())
    pace = Pace()
    slots = Slots(pace.concurrency(limits.meters, 0.0, most))
    caller = _caller(job, most, redactor)
    try:
        async with Limiter(state, limits, now=job.clocks.now) as limiter:
            attempts = _attempts(job, kit, store, caller, limiter, redactor)
            dispatcher = Dispatcher(
                limiter=limiter,
                slots=slots,
                store=store,
                fail_fast=FailFast(job.policy.fail_fast),
                run=job.run,
                observe=observe,
                clocks=job.clocks,
                reuse=reuse,
            )
            pursuer = _pursuer(job, kit, attempts, limits, slots, pace, dispatcher, limiter, observe, reuse)
            beat = Beat(
                attempts=attempts,
                pace=pace,
                slots=slots,
                most=most,
                scope=limits,
                limiter=limiter,
                room_has_changed=dispatcher.room_has_changed,
                observe=observe,
                now=job.clocks.now,
                policy=job.policy,
                stop=dispatcher.stop,
            )
            async with _beating(beat):
                yield dispatcher, pursuer, limiter
    finally:
        await caller.close()


@asynccontextmanager
async def _beating(beat: Beat) -> AsyncIterator[None]:
    task = asyncio.create_task(beat.go_on())
    try:
        yield
        await beat.tell()
    finally:
        task.cancel()


def _pursuer(
    job: Job,
    kit: Tools,
    attempts: Attempts,
    limits: Scope,
    slots: Slots,
    pace: Pace,
    dispatcher: Dispatcher,
    limiter: Limiter,
    observe: Observer,
    reuse: Reuse | None,
) -> Pursuer:
    return Pursuer(
        attempts=attempts,
        limiter=limiter,
        scope=limits,
        slots=slots,
        pace=pace,
        check=functools.partial(check, job.schema),
        reask=reask,
        window=kit.window,
        policy=job.policy,
        run=job.run,
        observe=observe,
        clocks=job.clocks,
        stop=dispatcher.stop,
        recall=reuse.recall if reuse else None,
    )


def _attempts(
    job: Job, kit: Tools, store: ResultStore, caller: Caller, limiter: Limiter, redactor: Redactor
) -> Attempts:
    return Attempts(
        caller=caller,
        limiter=limiter,
        wire=chat,
        store=store,
        price=kit.prices.cost,
        count=kit.counter.count,
        count_messages=kit.counter.count_messages,
        learn=kit.learn,
        redactor=redactor,
        endpoint=_endpoint(job),
        slack_s=job.limits.arrival_slack,
        reserves_money=job.keeps_money,
        now=job.clocks.now,
    )


def _caller(job: Job, slots: int, redactor: Redactor) -> Caller:
    connection = job.connection
    open_for = job.transport or functools.partial(
        open_transport,
        ca_file=connection.ca_file,
        proxy=connection.proxy.reveal() if connection.proxy else None,
    )
    return Caller(
        open_for(slots),
        redactor,
        timeout_s=connection.timeout_s,
        connect_timeout_s=connection.connect_timeout_s,
    )


def _endpoint(job: Job) -> Endpoint:
    credential = job.connection.credentials[0]
    target = Target(url=job.connection.url(), headers={**HEADERS, **job.connection.headers(credential)})
    return Endpoint(name=job.connection.base_url, credential=credential.id, target=target)
