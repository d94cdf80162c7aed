"""Gates and latencies on Redis."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_llmbatch.engine.state.protocols import Closed, Gate, Scope, Seen
from airflow_provider_llmbatch.engine.state.redis import keys
from airflow_provider_llmbatch.engine.state.redis.keys import Keys

_MICRO = 1_000_000
#: Latencies are kept in so many slots of a span.
SLOTS_PER_SPAN = 4


class RedisHealth:
    """The roles ``Health`` and ``Latencies``; :class:`.state.RedisState` brings the connection."""

    _domain: str

    async def script(self, name: str, names: Sequence[str], arguments: Sequence[str]) -> Any:
        """Run a script."""
        raise NotImplementedError

    async def command(self, *words: str) -> Any:
        """Send one command of Redis."""
        raise NotImplementedError

    async def park(self, gate: Gate, reason: str) -> Closed:
        """See :meth:`..protocols.Health.park`."""
        since, until = await self._change(gate.name, json.dumps(_gate(gate)), reason)
        at = None if gate.sticky else int(until) / _MICRO
        return Closed(gate=gate.name, since=int(since) / _MICRO, until=at, reason=reason)

    async def unpark(self, gate: str) -> None:
        """See :meth:`..protocols.Health.unpark`."""
        await self._change(gate, "null", "")

    async def parked(self) -> Sequence[Closed]:
        """See :meth:`..protocols.Health.parked`."""
        names = Keys(self._domain)
        found = []
        for name in sorted(await self.command("SMEMBERS", names.gates)):
            since, until, sticky, why = await self.command(
                "HMGET", names.gate(name), "since", "until", "sticky", "why"
            )
            if since is not None:
                at = None if sticky == "1" else int(until) / _MICRO
                found.append(Closed(gate=name, since=int(since) / _MICRO, until=at, reason=why or ""))
        return found

    async def add_latencies(self, counts: Mapping[str, Mapping[int, int]], span_s: float) -> None:
        """See :meth:`..protocols.Latencies.add_latencies`."""
        slot = await self.slot(span_s)
        for endpoint, buckets in counts.items():
            key = keys.latencies(endpoint, slot)
            for bucket, count in buckets.items():
                await self.command("HINCRBY", key, str(bucket), str(count))
            await self.command("PEXPIRE", key, str(math.ceil(2000 * span_s)))
            spans = keys.latency_spans(endpoint)
            await self.command("SADD", spans, repr(span_s))
            await self.command("PEXPIRE", spans, str(math.ceil(2000 * span_s)))

    async def latencies(self, endpoints: Sequence[str], span_s: float) -> Mapping[str, Mapping[int, int]]:
        """See :meth:`..protocols.Latencies.latencies`."""
        last = await self.slot(span_s)
        found: dict[str, Counter[int]] = {endpoint: Counter() for endpoint in endpoints}
        for endpoint in endpoints:
            for slot in range(last - SLOTS_PER_SPAN, last + 1):
                flat = await self.command("HGETALL", keys.latencies(endpoint, slot))
                pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
                found[endpoint].update({int(bucket): int(count) for bucket, count in pairs})
        return found

    async def slot(self, span_s: float) -> int:
        """Return the number of the stretch of time that latencies are counted in now."""
        seconds, micro = await self.command("TIME")
        return int((int(seconds) + int(micro) / _MICRO) * SLOTS_PER_SPAN // span_s)

    async def _change(self, name: str, gate: str, reason: str) -> list[str]:
        names = Keys(self._domain)
        answer: list[str] = await self.script("park", [names.gate(name), names.gates], [gate, reason])
        return answer


def asked(scope: Scope, seen: Sequence[Seen]) -> list[dict[str, Any]]:
    """Return a scope's gates and what was seen there as the script takes them."""
    met = {one.gate: one for one in seen}
    return [{**_gate(gate), **_seen(met.get(gate.name))} for gate in scope.gates]


def closed(text: str, scope: Scope) -> Closed | None:
    """Read which gate of the scope the script has found parked."""
    if not text:
        return None
    index, since, until, reason = json.loads(text)
    at = None if until == "-1" else int(until) / _MICRO
    return Closed(gate=scope.gates[index - 1].name, since=int(since) / _MICRO, until=at, reason=reason)


def _gate(gate: Gate) -> dict[str, Any]:
    return {
        "name": gate.name,
        "failures": gate.failures,
        "over": round(gate.over_s * _MICRO),
        "probe": round(gate.probe_s * _MICRO),
        "trial": round(gate.trial_s * _MICRO),
        "sticky": int(gate.sticky),
    }


def _seen(seen: Seen | None) -> dict[str, Any]:
    if seen is None:
        return {}
    answered, unused = (-1 if at is None else round(at * _MICRO) for at in (seen.answered_at, seen.unused_at))
    return {"seen": [answered, list(seen.failed), unused]}
