"""Conditions and pins, in Redis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from airflow_provider_llmbatch.engine.state.health import KEPT_S
from airflow_provider_llmbatch.engine.state.protocols import Closed
from airflow_provider_llmbatch.engine.state.redis import keys
from airflow_provider_llmbatch.engine.state.redis.health import SLOTS_PER_SPAN
from airflow_provider_llmbatch.engine.state.redis.keys import Keys
from airflow_provider_llmbatch.engine.state.redis.state import RedisState
from airflow_provider_llmbatch.engine.state.routing import Condition, Pin

_MICRO = 1_000_000
_FIELDS = ("since", "until", "sticky", "why", "good", "failed")


class RedisRouting:
    """
    What people know and do about routes, on the server of a :class:`.state.RedisState`.

    :param state: reaches the server.
    """

    def __init__(self, state: RedisState) -> None:
        self._state = state
        self._names = Keys(state.domain)

    async def conditions(self) -> Sequence[Condition]:
        """See :meth:`..routing.Routing.conditions`."""
        found = []
        offered = await self._offered()
        listed = set(await self._state.command("SMEMBERS", self._names.gates))
        for name in sorted(offered | listed):
            fields = await self._state.command("HMGET", self._names.gate(name), *_FIELDS)
            if name in offered or any(field is not None for field in fields):
                found.append(_condition(name, fields, name in offered))
            else:
                # Nobody has heard of it for a day; where keys expire, each hour brings another name.
                await self._state.command("SREM", self._names.gates, name)
        return found

    async def forget(self, gate: str) -> None:
        """See :meth:`..routing.Routing.forget`."""
        await self._state.command("DEL", self._names.gate(gate))
        await self._state.command("SREM", self._names.gates, gate)
        for span_s in await self._state.command("SMEMBERS", keys.latency_spans(gate)):
            last = await self._state.slot(float(span_s))
            for slot in range(last - 2 * SLOTS_PER_SPAN, last + 1):
                await self._state.command("DEL", keys.latencies(gate, slot))

    async def pin(self, gate: str, *, by: str) -> None:
        """See :meth:`..routing.Routing.pin`."""
        seconds, micro = await self._state.command("TIME")
        note = json.dumps({"by": by, "at": int(seconds) + int(micro) / _MICRO})
        await self._state.command("HSET", self._names.pins, gate, note)

    async def unpin(self, gate: str) -> None:
        """See :meth:`..routing.Routing.unpin`."""
        await self._state.command("HDEL", self._names.pins, gate)

    async def offer(self, gates: Sequence[str]) -> None:
        """See :meth:`..routing.Pins.offer`."""
        seconds, _ = await self._state.command("TIME")
        for gate in gates:
            await self._state.command("ZADD", self._names.offered, str(seconds), gate)
        await self._state.command("EXPIRE", self._names.offered, str(round(KEPT_S)))

    async def _offered(self) -> set[str]:
        seconds, _ = await self._state.command("TIME")
        until = f"({int(seconds) - KEPT_S}"
        await self._state.command("ZREMRANGEBYSCORE", self._names.offered, "-inf", until)
        return set(await self._state.command("ZRANGE", self._names.offered, "0", "-1"))

    async def pins(self) -> Sequence[Pin]:
        """See :meth:`..routing.Pins.pins`."""
        flat = await self._state.command("HGETALL", self._names.pins)
        pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
        found = [Pin(gate=gate, **json.loads(note)) for gate, note in pairs]
        return sorted(found, key=lambda pin: (-pin.at, pin.gate))


def _condition(gate: str, fields: Sequence[Any], offered: bool) -> Condition:
    since, until, sticky, why, good, failed = fields
    closed = None
    if since is not None:
        at = None if sticky == "1" else int(until) / _MICRO
        closed = Closed(gate=gate, since=int(since) / _MICRO, until=at, reason=why or "")
    return Condition(
        gate=gate,
        closed=closed,
        answered_at=None if good is None else int(good) / _MICRO,
        failed=len((failed or "").split()),
        offered=offered,
    )
