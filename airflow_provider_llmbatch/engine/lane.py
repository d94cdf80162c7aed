"""Open the lanes of a job: for each endpoint and credential its limits, gates, slots and calls."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from airflow_provider_llmbatch.engine.connection import ConnectionSettings, Credential
from airflow_provider_llmbatch.engine.dispatch.attempt import Attempts, Endpoint
from airflow_provider_llmbatch.engine.dispatch.call import Caller, Target, most_connections, open_transport
from airflow_provider_llmbatch.engine.dispatch.lane import Lane
from airflow_provider_llmbatch.engine.dispatch.lanes import Lanes
from airflow_provider_llmbatch.engine.dispatch.limit.concurrency import Pace
from airflow_provider_llmbatch.engine.dispatch.limit.limiter import Limiter
from airflow_provider_llmbatch.engine.dispatch.limit.scope import scope
from airflow_provider_llmbatch.engine.dispatch.redact import Redactor
from airflow_provider_llmbatch.engine.dispatch.slots import Slots
from airflow_provider_llmbatch.engine.dispatch.wire import chat
from airflow_provider_llmbatch.engine.exchange import Rewrite
from airflow_provider_llmbatch.engine.job import Job, Tools
from airflow_provider_llmbatch.engine.results.store import ResultStore
from airflow_provider_llmbatch.engine.state.protocols import Closed, Gate, Scope, State
from airflow_provider_llmbatch.errors import LLMBatchError

#: Headers of every call; only encodings that the reader undoes are accepted.
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
}


def scope_of(job: Job, credential: Credential, fence: int) -> Scope:
    """Return what calls to a job's endpoint take from, and the gates that they go through."""
    return scope(
        job.connection,
        credential,
        job.model,
        owner=job.owner,
        fence=fence,
        budget_key=job.budget_key,
        run=job.run_key,
        budget_usd=job.budget_usd,
        priority=job.priority,
        gates=_gates(job, credential),
    )


def scopes_of(job: Job, fence: int) -> list[Scope]:
    """Return the scopes of all endpoints and credentials."""
    ends = [job.at(name) for name in job.table.names]
    return [scope_of(end, credential, fence) for end in ends for credential in end.connection.credentials]


class LaneOpener:
    """
    Opens lanes, at the start and for credentials that turn up later.

    :param job: what is asked for.
    :param kits: tools by endpoint.
    :param store: takes the ledger's lines.
    :param state: limits and health.
    :param fence: number of the try.
    :param redactor: takes secrets out of what comes back.
    :param stack: closes what was opened.
    """

    def __init__(
        self,
        job: Job,
        kits: Mapping[str, Tools],
        store: ResultStore,
        state: State,
        fence: int,
        redactor: Redactor,
        stack: AsyncExitStack,
    ) -> None:
        self._job = job
        self._kits = kits
        self._store = store
        self._state = state
        self._fence = fence
        self._redactor = redactor
        self._stack = stack
        self._callers: dict[str, Caller] = {}
        self._learnt: dict[str, list[Rewrite]] = {name: [] for name in kits}
        #: told of parked gates, once they are all together
        self.lanes: Lanes

    async def open_all(self) -> dict[str, list[Lane]]:
        """Open the lanes of the job as its connections stand."""
        found: dict[str, list[Lane]] = {}
        for route in self._job.table.names:
            job = self._job.at(route)
            found[route] = [await self._open(route, job, c) for c in job.connection.credentials]
        return found

    async def reopen(self, route: str, known: frozenset[str]) -> Sequence[Lane]:
        """Read a connection again, and open lanes for the credentials that are not known yet."""
        job = self._job.at(route)
        if job.reread is None:
            return []
        try:
            settings = await asyncio.to_thread(job.reread, job.connection.conn_id)
        except LLMBatchError:
            # It cannot be read at the moment, or not be used: what was known stays.
            return []
        self._redactor.add(settings.secrets())
        fresh = [c for c in settings.credentials if gate_of(settings, c).name not in known]
        return [await self._open(route, job.with_connection(settings), c) for c in fresh]

    async def _open(self, route: str, job: Job, credential: Credential) -> Lane:
        limits = scope_of(job, credential, self._fence)
        most = _most(job.connection, limits)
        pace = Pace()
        opened: list[Lane] = []

        def on_closed(closed: Closed) -> bool:
            return self.lanes.heed(opened[0], closed)

        def on_wait(waits_for: str, wait_s: float) -> None:
            self.lanes.waits(opened[0], waits_for, wait_s)

        limiter = Limiter(self._state, limits, now=job.clocks.now, on_closed=on_closed, on_wait=on_wait)
        await self._stack.enter_async_context(limiter)
        # Whoever starts or clears a task may have mended the key: one call is worth knowing.
        limiter.try_again(limits.gates[0].name)
        opened.append(
            Lane(
                route=route,
                attempts=self._attempts(route, job, credential, limiter, most),
                limiter=limiter,
                scope=limits,
                slots=Slots(pace.concurrency(limits.meters, 0.0, most)),
                pace=pace,
                most=most,
                window=self._kits[route].window,
                credential=limits.gates[0],
                endpoint=limits.gates[1],
                expires_at=job.connection.expires_at,
                learnt=self._learnt[route],
            )
        )
        return opened[0]

    def _attempts(
        self, route: str, job: Job, credential: Credential, limiter: Limiter, most: int
    ) -> Attempts:
        kit = self._kits[route]
        return Attempts(
            caller=self._caller(route, job, most),
            limiter=limiter,
            wire=chat,
            store=self._store,
            price=kit.prices.cost,
            count=kit.counter.count,
            count_messages=kit.counter.count_messages,
            learn=kit.learn,
            redactor=self._redactor,
            endpoint=_endpoint(job.connection, credential),
            slack_s=job.connection.limit(credential.account, job.model).arrival_slack,
            reserves_money=self._job.keeps_money,
            now=job.clocks.now,
            wall=job.clocks.wall,
        )

    def _caller(self, route: str, job: Job, most: int) -> Caller:
        if route not in self._callers:
            connection = job.connection
            open_for = job.transport or functools.partial(
                open_transport,
                ca_file=connection.ca_file,
                proxy=connection.proxy.reveal() if connection.proxy else None,
            )
            self._callers[route] = caller = Caller(
                open_for(most),
                self._redactor,
                timeout_s=connection.timeout_s,
                connect_timeout_s=connection.connect_timeout_s,
            )
            self._stack.push_async_callback(caller.close)
        return self._callers[route]


def gate_of(
    connection: ConnectionSettings, credential: Credential, probe_s: float = 60.0, trial_s: float = 0.0
) -> Gate:
    """Return a credential's gate; with another key, or at another service, it is another one."""
    key = credential.key.digest() if credential.key else "none"
    host = connection.base_url.partition("://")[2].partition("/")[0]
    return Gate(
        name=f"credential/{credential.id}/{key}@{host}",
        probe_s=probe_s,
        trial_s=trial_s if credential.key else 0.0,
    )


def _gates(job: Job, credential: Credential) -> tuple[Gate, Gate]:
    policy = job.policy
    endpoint = Gate(
        name=f"endpoint/{job.connection.base_url}/{job.model}",
        failures=policy.park_failures,
        over_s=policy.park_over_s,
        probe_s=policy.probe_s,
        sticky=policy.sticky,
    )
    return gate_of(job.connection, credential, policy.probe_s, policy.trial_s), endpoint


def _most(connection: ConnectionSettings, limits: Scope) -> int:
    return min(limits.max_in_flight, connection.concurrency or limits.max_in_flight, most_connections())


def _endpoint(connection: ConnectionSettings, credential: Credential) -> Endpoint:
    target = Target(url=connection.url(), headers={**HEADERS, **connection.headers(credential)})
    return Endpoint(name=connection.base_url, credential=credential.id, target=target)
