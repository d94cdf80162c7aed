"""Put the dispatcher of one run together: connection, limiter, wire, check."""

from __future__ import annotations

import functools
from contextlib import AsyncExitStack

from airflow_provider_llmbatch.engine.dispatch.attempt import Attempts, Endpoint
from airflow_provider_llmbatch.engine.dispatch.call import Caller, Target, open_transport
from airflow_provider_llmbatch.engine.dispatch.dispatcher import Dispatcher
from airflow_provider_llmbatch.engine.dispatch.limit.limiter import Limiter
from airflow_provider_llmbatch.engine.dispatch.redact import Redactor
from airflow_provider_llmbatch.engine.dispatch.wire import chat
from airflow_provider_llmbatch.engine.job import Job, Tools
from airflow_provider_llmbatch.engine.observe.events import Observer
from airflow_provider_llmbatch.engine.results.store import ResultStore
from airflow_provider_llmbatch.engine.state.protocols import Scope
from airflow_provider_llmbatch.engine.validate.check import check

#: Headers of every call; only encodings that the reader undoes are accepted.
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
}


async def assemble(
    job: Job,
    kit: Tools,
    store: ResultStore,
    limiter: Limiter,
    limits: Scope,
    observe: Observer,
    stack: AsyncExitStack,
) -> Dispatcher:
    """
    Return a dispatcher that is ready to run.

    :param stack: closes what was opened here.
    """
    slots = min(limits.max_in_flight, job.connection.concurrency or limits.max_in_flight)
    redactor = Redactor(job.connection.secrets())
    caller = _caller(job, slots, redactor)
    stack.push_async_callback(caller.close)
    attempts = Attempts(
        caller=caller,
        limiter=limiter,
        wire=chat,
        store=store,
        price=kit.prices.cost,
        count=kit.counter.count,
        redactor=redactor,
        endpoint=_endpoint(job),
        slack_s=job.limits.arrival_slack,
        reserves_money=job.budget_usd is not None,
        now=job.clocks.now,
    )
    return Dispatcher(
        attempts=attempts,
        limiter=limiter,
        scope=limits,
        slots_at_most=slots,
        store=store,
        check=functools.partial(check, job.schema),
        window=kit.window,
        policy=job.policy,
        run=job.run,
        observe=observe,
        clocks=job.clocks,
    )


def _caller(job: Job, slots: int, redactor: Redactor) -> Caller:
    connection, limited = job.connection, bool(job.limits.requests_per_minute or job.limits.tokens_per_minute)
    slack_s = job.limits.arrival_slack
    transport = open_transport(
        slots,
        verify=connection.ca_file or True,
        proxy=connection.proxy.reveal() if connection.proxy else None,
    )
    # The grant is taken before the connection is made, so connecting must not outlast it.
    connect_s = (
        min(connection.connect_timeout_s, slack_s) if limited and slack_s else connection.connect_timeout_s
    )
    return Caller(transport, redactor, timeout_s=connection.timeout_s, connect_timeout_s=connect_s)


def _endpoint(job: Job) -> Endpoint:
    credential = job.connection.credentials[0]
    target = Target(url=job.connection.url(), headers={**HEADERS, **job.connection.headers(credential)})
    return Endpoint(name=job.connection.base_url, credential=credential.id, target=target)
