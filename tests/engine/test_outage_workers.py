"""Workers in an outage of the primary, over one Redis: judged from the arrivals at both services."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.engine.rehearsal import Simulated, simulated_apart
from tests.services import workers
from tests.services.redis_server import running

DOWN = {"match": {}, "reply": {"status": 503, "error": {"message": "overloaded", "type": "server_error"}}}
#: A minute of an outage in four seconds.
POLICY = {"park_over_s": 1.0, "probe_s": 4.0}
WIDE = ("--latency", "0.1", "--rpm", "1000000", "--tpm", "1000000000")
WORKERS, ITEMS = 3, 400


async def seen_at(service: Simulated, count: int) -> None:
    until = time.monotonic() + 60
    while len(service.arrivals()) < count:
        assert time.monotonic() < until, "nothing arrives"
        await asyncio.sleep(0.1)


async def test_all_workers_leave_a_primary_that_is_down_try_it_once_a_minute_and_come_back(tmp_path: Path):
    with running(tmp_path / "redis") as redis, simulated_apart(*WIDE) as one, simulated_apart(*WIDE) as two:
        one.play(DOWN)
        wanted = {
            "state": redis.url,
            "url": one.url,
            "fallback": two.url,
            "items": ITEMS,
            "policy": POLICY,
            "max_tokens": 400,
            "extra": {"max_in_flight": 8, "arrival_slack": 1.0},
            "hold": True,
        }
        started = [
            workers.start(name=f"w{n}", results=str(tmp_path / f"r{n}"), **wanted) for n in range(WORKERS)
        ]
        await asyncio.to_thread(workers.release, started)
        await seen_at(two, 100)
        healed_at = time.time()
        one.play()
        manifests = [await asyncio.to_thread(workers.manifest, worker) for worker in started]
        primary, fallback = one.arrivals(), two.arrivals()
    assert [manifest["counts"] for manifest in manifests] == [{"ok": ITEMS}] * WORKERS
    # Nothing is paid twice for being moved.
    assert sum(a.status == 200 for a in (*primary, *fallback)) == WORKERS * ITEMS
    down = [a.time for a in primary if a.time < healed_at]
    parked_at = down[0] + POLICY["park_over_s"] + 5.0
    probes = [at for at in down if at > parked_at]
    assert len(probes) <= 1 + (healed_at - parked_at) / POLICY["probe_s"]
    assert len(down) < WORKERS * ITEMS / 2
    back_at = min(a.time for a in primary if a.status == 200)
    assert back_at - healed_at < POLICY["probe_s"] + 3.0
    assert sum(a.status == 200 for a in primary) > 50
