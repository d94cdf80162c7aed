"""All state roles on Redis; a Lua script is the atomic step, the server's clock the only one."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from airflow_provider_llmbatch.engine.state import arithmetic
from airflow_provider_llmbatch.engine.state.protocols import (
    Grant,
    Level,
    Need,
    Scope,
    Seen,
    Settlement,
    Standing,
    Taken,
    Told,
)
from airflow_provider_llmbatch.engine.state.redis import health, keys, scripts
from airflow_provider_llmbatch.engine.state.redis.asked import (
    MICRO,
    key_names,
    meter_of,
    rules_for,
    settlement_of,
    told_of,
)
from airflow_provider_llmbatch.engine.state.redis.keys import Keys
from airflow_provider_llmbatch.errors import StaleFenceError, StateUnreachableError, StoreError

#: Share of the time for which leases last without a sign of life, after which they are renewed.
RENEW_SHARE = 0.2
#: Seconds for which a run's progress is kept.
STANDING_S = 14 * 86400


class RedisState(health.RedisHealth):
    """
    State for workers on any number of hosts.

    :param client: from :func:`.connect.connect`.
    :param domain: where fences lie; everything of one take lies in its scope's domain.
    :param recent: whether this run has sent something within the last window, as its ledger knows; a store
        without data is then taken for one that has lost them.
    :param new_id: makes the id of a take.
    :param wall: Unix seconds, by which budgets know their day and month.
    """

    def __init__(
        self,
        client: Any,
        *,
        domain: str = "llmbatch",
        recent: bool = False,
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._wall = wall
        self._client = client
        self._domain = domain
        self._recent = recent
        self._new_id = new_id
        self._epoch = ""
        self._server = ""
        #: takes whose answer never came: what they gave is given back with the next one
        self._unanswered: dict[str, int] = {}
        #: tries that have taken, and when they last renewed their leases, on the loop's clock
        self._begun: dict[tuple[str, int, str], float] = {}
        self._under_way: set[asyncio.Future[Any]] = set()

    async def take(
        self,
        scope: Scope,
        needs: Sequence[Need],
        settled: Sequence[Settlement] = (),
        told: Sequence[Told] = (),
        seen: Sequence[Seen] = (),
    ) -> Taken:
        """See :meth:`.protocols.Limits.take`."""
        await self._greet(scope.domain)
        take_id = self._new_id()
        answer = await self._ask(scope, needs, settled, told, seen, take_id)
        verdict, now, granted, wait_us, waits_for, fence, self._epoch, closed = answer
        if verdict == "stale":
            raise StaleFenceError(
                f"Try {scope.fence} of {scope.owner} has been replaced by try {fence}; it sends nothing more."
            )
        return Taken(
            grants=tuple(
                Grant(id=f"{take_id}:{number}", need=need, at=int(now) / MICRO)
                for number, need in enumerate(needs[: int(granted)], start=1)
            ),
            wait_s=int(wait_us) / MICRO,
            waits_for=scope.meters[int(waits_for) - 1].key if waits_for.isdecimal() else waits_for,
            refused=verdict == "refused",
            lost=verdict == "lost",
            closed=health.closed(closed, scope),
        )

    async def throttle(self, scope: Scope, seconds: float) -> None:
        """See :meth:`.protocols.Limits.throttle`."""
        windows = [meter for meter in scope.meters if meter.window_s is not None]
        arguments = [
            round(seconds * MICRO),
            round(scope.window_s * MICRO),
            round(max((meter.slack_s for meter in windows), default=0.0) * MICRO),
            arithmetic.FACTOR_STEEPNESS,
            arithmetic.FACTOR_DROP,
            arithmetic.FACTOR_FLOOR,
            *(meter.capacity for meter in windows),
        ]
        names = Keys(scope.domain)
        places = [names.throttle(scope.throttle), *(names.meter(meter.key) for meter in windows)]
        await self.script("throttle", places, [str(n) for n in arguments])

    async def rebuild(self, scope: Scope, used: Mapping[str, int]) -> None:
        """See :meth:`.protocols.Limits.rebuild`."""
        budgets = [m for m in scope.meters if m.window_s is None and m.key in used]
        if budgets:
            names = [Keys(scope.domain).meter(m.key_at(self._wall())) for m in budgets]
            await self.script("rebuild", names, [str(used[m.key]) for m in budgets])

    async def levels(self, scope: Scope) -> Sequence[Level]:
        """See :meth:`.protocols.Limits.levels`."""
        names = Keys(scope.domain)
        sizes = [meter_of(meter) for meter in scope.meters]
        answer = await self.script(
            "levels",
            [names.throttle(scope.throttle), *(names.meter(m.key_at(self._wall())) for m in scope.meters)],
            [
                str(round(scope.window_s * MICRO)),
                str(arithmetic.FACTOR_STEEPNESS),
                *(str(size[key]) for size in sizes for key in ("kept", "quantum")),
            ],
        )
        factor, *used = answer
        return [
            Level(key=meter.key, used=int(n), capacity=meter.capacity, factor=int(factor) / MICRO)
            for meter, n in zip(scope.meters, used, strict=True)
        ]

    async def next(self, owner: str, at_least: int = 1) -> int:
        """See :meth:`.protocols.Fences.next`."""
        names = Keys(self._domain)
        fence, *throttles = await self.script("fence", [names.fence(owner)], [str(at_least)])
        for throttle in throttles:
            await self.script("free", [names.leases(throttle), names.lease_data(throttle, owner)], [fence])
        return int(fence)

    async def report(self, standing: Standing) -> None:
        """See :meth:`.protocols.Progress.report`."""
        async with self._reaching():
            seconds, _ = await self._client.time()
            value = {
                "result_path": standing.result_path,
                "done": standing.done,
                "items": standing.items,
                "figures": dict(standing.figures),
                "at": seconds,
            }
            await self._client.set(
                keys.standing(standing.owner), json.dumps(value, allow_nan=False), ex=STANDING_S
            )

    async def standing(self, owner: str) -> Standing | None:
        """See :meth:`.protocols.Progress.standing`."""
        async with self._reaching():
            value = await self._client.get(keys.standing(owner))
        return None if value is None else Standing(owner=owner, **json.loads(value))

    async def warning(self) -> str | None:
        """Return, in a sentence, what about the server may cost what it holds; None when nothing."""
        try:
            found = await asyncio.wait_for(self.command("CONFIG", "GET", "maxmemory-policy"), 5.0)
        except (StoreError, TimeoutError):
            return None
        policy = found.get("maxmemory-policy") if isinstance(found, dict) else found[1] if found else None
        if policy in (None, "noeviction"):
            return None
        return (
            f"Redis throws keys away when it is full (maxmemory-policy {policy}): limits and claims may be "
            "forgotten. Set it to noeviction, or give [llmbatch] a server of its own."
        )

    @property
    def domain(self) -> str:
        """What all that one take touches has in common."""
        return self._domain

    async def close(self) -> None:
        """Close the connections, when what is under way is over."""
        await asyncio.gather(*self._under_way, return_exceptions=True)
        pool = getattr(self._client, "connection_pool", None)
        for sentinel in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
            await sentinel.aclose()
        await self._client.aclose()

    async def script(self, name: str, names: Sequence[str], arguments: Sequence[str]) -> Any:
        """
        Run a script to its end, even when the caller is cancelled.

        The client swallows a cancellation at times, and a connection given up half way is one less.
        """
        task = asyncio.ensure_future(self._run(name, names, arguments))
        self._under_way.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    async def command(self, *words: str) -> Any:
        """Send one command of Redis."""
        async with self._reaching():
            return await self._client.execute_command(*words)

    async def _run(self, name: str, names: Sequence[str], arguments: Sequence[str]) -> Any:
        async with self._reaching():
            return await scripts.run(self._client, name, names, arguments)

    def _over(self, task: asyncio.Future[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # Whoever was cancelled meanwhile does not want to know.
            task.exception()

    async def _ask(
        self,
        scope: Scope,
        needs: Sequence[Need],
        settled: Sequence[Settlement],
        told: Sequence[Told],
        seen: Sequence[Seen],
        take_id: str,
    ) -> list[str]:
        undo = dict(self._unanswered)
        mark = (scope.owner, scope.fence, scope.throttle)
        said = scope.about(told)
        now = asyncio.get_running_loop().time()
        renewed = self._begun.get(mark, now)
        renew = now - renewed >= scope.life_s * RENEW_SHARE
        ask = {
            "id": take_id,
            "owner": scope.owner,
            "fence": scope.fence,
            "first": int(mark not in self._begun),
            "throttle": scope.throttle,
            "waiter": scope.waiter_key,
            "priority": scope.priority,
            "max_in_flight": scope.max_in_flight,
            "lease_us": round(scope.lease_s * MICRO),
            "life_us": round(scope.life_s * MICRO),
            "renew": int(renew),
            **rules_for(scope),
            "known_epoch": self._epoch,
            "server": self._server,
            "recent": int(self._recent),
            "undo": list(undo.items()),
            "meters": [{**meter_of(meter), **told_of(said.get(meter))} for meter in scope.meters],
            "gates": health.asked(scope, seen),
            "needs": [[1, need.tokens, need.micro_usd] for need in needs],
            "settled": [settlement_of(one) for one in settled],
        }
        try:
            answer: list[str] = await self.script("take", key_names(scope, self._wall()), [json.dumps(ask)])
        except BaseException:
            self._unanswered[take_id] = len(needs)
            raise
        self._begun[mark] = now if renew else renewed
        for known in undo:
            self._unanswered.pop(known, None)
        return answer

    async def _greet(self, domain: str) -> None:
        """Look, after each loss of connection, whether the server is still the same."""
        if self._server:
            return
        async with self._reaching():
            server = (await self._client.info("server")).get("run_id", "")
        await self.script("restarted", [Keys(domain).epoch], [server])
        self._server = server

    @asynccontextmanager
    async def _reaching(self) -> AsyncIterator[None]:
        """
        Tell a server that is away from one that answers with an error.

        :raises StateUnreachableError: when it is away; the same call may succeed later.
        :raises StoreError: when it refuses.
        """
        from redis import exceptions

        try:
            yield
        except (exceptions.ConnectionError, exceptions.TimeoutError, TimeoutError, OSError) as error:
            self._server = ""
            raise StateUnreachableError(f"Redis cannot be reached: {type(error).__name__}.") from error
        except exceptions.RedisError as error:
            if _passes(error):
                self._server = ""
                raise StateUnreachableError(f"Redis is not ready: {error}") from error
            raise StoreError(f"Redis refuses: {error}. Check version, memory and permissions.") from error


def _passes(error: Exception) -> bool:
    """Whether the server will take the same call when it has loaded its data or changed its role."""
    words = ("LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "BUSY")
    return str(error).upper().startswith(words) or type(error).__name__ in (
        "BusyLoadingError",
        "ReadOnlyError",
        "ClusterDownError",
        "MasterDownError",
        "MasterNotFoundError",
        "TryAgainError",
    )
