"""
Takes from one process: ``python -m tests.benchmarks.redis_takes --state redis://… --name w1 --seconds 4``.

It prints ``ready``, waits for a line, and then takes for one request at a time and settles the one before,
each take a script call of its own. The last line printed is how many there were.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

from airflow_provider_llmbatch.engine.state.protocols import Meter, Need, Scope, Settlement
from airflow_provider_llmbatch.engine.state.redis import RedisState, connect

#: Who takes at the same time in one process.
TAKERS = 4


async def takes(address: str, name: str, seconds: float) -> int:
    """Take for so many seconds; return how often."""
    state, done = RedisState(connect(address)), 0
    meters = (
        Meter(key="bench/requests", unit="requests", capacity=10**9, window_s=60.0),
        Meter(key="bench/tokens", unit="tokens", capacity=10**12, window_s=60.0),
    )
    scope = Scope(
        domain="bench", throttle="bench/model", meters=meters, max_in_flight=10**6, owner=name, fence=1
    )

    async def take_on(until: float) -> None:
        nonlocal done
        settled: list[Settlement] = []
        while time.monotonic() < until:
            taken = await state.take(scope, [Need(tokens=100)], settled)
            settled = [Settlement(grant=grant, tokens=90) for grant in taken.grants]
            done += len(taken.grants)

    try:
        await take_on(time.monotonic())
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        until = time.monotonic() + seconds
        await asyncio.gather(*(take_on(until) for _ in range(TAKERS)))
    finally:
        await state.close()
    return done


def main() -> None:
    """Take and print how often."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(takes(given.state, given.name, given.seconds))))


if __name__ == "__main__":
    main()
