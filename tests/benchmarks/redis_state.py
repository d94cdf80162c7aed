"""
What the shared state in Redis costs: added time, throughput, takes, memory. Redis is on the loopback.

Memory is measured with fewer items than are spoken of. The state of a run does not grow with its items: what
a million take is the base plus the slope between two runs, times a million. Claims lie in buckets that share
no memory: of the buckets that a million fill, one in eight is filled, through the same scripts as in a run,
and takes an eighth; that this is so is shown by a half of them beside it, in ``memory_claims_linear``.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.state.claims import Pointer
from airflow_provider_llmbatch.engine.state.redis import connect, scripts
from airflow_provider_llmbatch.engine.state.redis.claims import RedisClaims, bucket_of
from tests.benchmarks.processes import measured, server
from tests.services.redis_server import BINARY, Server, running

LATENCY_S = 0.05
ROUNDS = 5
#: Rounds of what is not a matter of milliseconds.
FEWER_ROUNDS = 3
TAKING_PROCESSES = 8
MILLION = 1_000_000
#: One bucket of claims in so many is filled.
ONE_IN = 8
#: Claims in one pipeline.
PIPELINE = 2_000


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Return the figures; an empty account where no Redis is installed."""
    if BINARY is None:
        print("redis: skipped, redis-server is not installed", flush=True)
        return {"redis": {"skipped": "redis-server is not installed"}}
    rounds, fewer = (1, 1) if quick else (ROUNDS, FEWER_ROUNDS)
    with tempfile.TemporaryDirectory(prefix="llmbatch-bench-") as name:
        folder = Path(name)
        with running(folder / "speed") as redis, server(".lean", "--latency", LATENCY_S) as url:
            found = _added(url, redis.url, 500 if quick else 3_000, rounds)
            found |= _throughput(url, redis.url, 1_000 if quick else 5_000, fewer)
            found["takes_per_s"] = _takes(redis.url, 1.0 if quick else 3.0, fewer)
        with running(folder / "memory") as redis, server(".lean", "--latency", 0.005) as url:
            found |= _memory(url, redis, (500, 1_000) if quick else (5_000, 20_000))
        with running(folder / "claims") as redis:
            found |= _memory_of_claims(redis, 10_000 if quick else MILLION)
    return {"redis": found}


def _added(url: str, address: str, items: int, rounds: int) -> dict[str, float]:
    seen = [
        measured("redis_calls", "--url", url, "--state", address, "--items", items) for _ in range(rounds)
    ]

    def middle(what: str, quantile: str) -> float:
        return round(statistics.median(one[what][quantile] for one in seen), 2)

    return {
        "bare_ms_p50": middle("bare", "p50"),
        "bare_ms_p99": middle("bare", "p99"),
        "added_ms_p50": middle("added", "p50"),
        "added_ms_p99": middle("added", "p99"),
    }


def _throughput(url: str, address: str, items: int, rounds: int) -> dict[str, float]:
    """Let runs on both stores take turns; the ratio is that of the middle figures."""
    rps: dict[str, list[float]] = {"sqlite": [], address: []}
    for _ in range(rounds):
        for state, found in rps.items():
            told = ("--url", url, "--state", state, "--items", items)
            found.append(measured("redis_runs", *told)["rps"])
    on_sqlite, on_redis = (statistics.median(found) for found in rps.values())
    return {
        "rps_sqlite": round(on_sqlite),
        "rps_redis": round(on_redis),
        "throughput_ratio": round(on_redis / on_sqlite, 3),
    }


def _takes(address: str, seconds: float, rounds: int) -> int:
    counts = [_takes_once(address, seconds) for _ in range(rounds)]
    return round(statistics.median(counts) / seconds)


def _takes_once(address: str, seconds: float) -> int:
    command = [sys.executable, "-m", "tests.benchmarks.redis_takes", "--state", address]
    command += ["--seconds", str(seconds), "--name"]
    workers = [
        subprocess.Popen(
            [*command, f"w{number}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        for number in range(TAKING_PROCESSES)
    ]
    # All of them are there before the first one begins.
    for worker in workers:
        assert worker.stdout is not None
        if worker.stdout.readline().strip() != "ready":
            raise RuntimeError("a process that takes from the limits did not get ready")
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
    return sum(int(json.loads(worker.communicate(timeout=60)[0].splitlines()[-1])) for worker in workers)


def _memory(url: str, redis: Server, sizes: Sequence[int]) -> dict[str, float]:
    used = []
    for items in sizes:
        redis.cli("flushall")
        measured("redis_runs", "--url", url, "--state", redis.url, "--items", items)
        used.append(_used_mb(redis))
    slope = max(0.0, (used[1] - used[0]) / (sizes[1] - sizes[0]))
    return {"memory_mb": round(used[0] + slope * (MILLION - sizes[0]), 2), "memory_measured_mb": used[1]}


def _memory_of_claims(redis: Server, count: int) -> dict[str, float]:
    empty, every = _used_mb(redis), range(count)
    half = [number for number in every if _bucket(number) % (2 * ONE_IN) == 0]
    asyncio.run(_claim(redis.url, half))
    halfway = _used_mb(redis) - empty
    rest = [number for number in every if _bucket(number) % (2 * ONE_IN) == ONE_IN]
    asyncio.run(_claim(redis.url, rest))
    grown = _used_mb(redis) - empty
    return {
        "memory_claims_mb": round(empty + grown * ONE_IN, 2),
        "memory_claims_linear": round(grown / (2 * halfway), 3),
        "claims": count,
        "claims_made": len(half) + len(rest),
    }


def _bucket(number: int) -> int:
    return bucket_of(f"question {number}")[0]


async def _claim(address: str, numbers: Sequence[int]) -> None:
    client = connect(address)
    pipeline = _Pipeline(client)
    claims: Any = RedisClaims(pipeline)  # type: ignore[arg-type]
    path = "s3://bucket/results/of/a/run"
    try:
        for first in range(0, len(numbers), PIPELINE):
            for number in numbers[first : first + PIPELINE]:
                question, holder = f"question {number}", f"dag/run/task/{number % 16}"
                await claims.claim(question, holder, fence=1)
                await claims.answer(question, holder, Pointer(path=path, chunk=number % 16, index=number))
            await pipeline.send()
    finally:
        await client.aclose()


class _Pipeline:
    """
    Stands where claims reach the server, and sends what they ask many at a time.

    :param client: of Redis.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._waiting = client.pipeline(transaction=False)
        self._expected: list[Any] = []
        self._shas: dict[str, str] = {}

    async def script(self, name: str, keys: Sequence[str], arguments: Sequence[str]) -> Any:
        """Take a script call in; the answer is the one of a claim that is won, and is compared later."""
        if name not in self._shas:
            self._shas[name] = await self._client.script_load(scripts.source(name))
        self._waiting.execute_command("EVALSHA", self._shas[name], len(keys), *keys, *arguments)
        answer: Any = ["won", ""] if name == "claim" else 1
        self._expected.append(answer)
        return answer

    async def command(self, *words: str) -> Any:
        """Send a command at once."""
        return await self._client.execute_command(*words)

    async def send(self) -> None:
        """Send what waits."""
        answers = await self._waiting.execute()
        if answers != self._expected:
            raise RuntimeError("a claim was not won, or its answer was not kept")
        self._expected.clear()


def _used_mb(redis: Server) -> float:
    lines = redis.cli("info", "memory").splitlines()
    used = next(line.partition(":")[2] for line in lines if line.startswith("used_memory:"))
    return round(int(used) / 2**20, 2)
