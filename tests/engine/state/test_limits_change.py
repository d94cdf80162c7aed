"""
The limits of a service change while a run goes on: judged by its arrival log.

A window of three seconds stands for a minute: within one a lower limit is known, and within five that it is
back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.simulator.arrivals import Arrival
from tests.engine.rehearsal import Simulated, dispatched, job, rows, simulated_apart
from tests.services.redis_server import running

WINDOW_S = 3.0
RPM = 300
#: The limit falls, and is back, after so many windows.
FALLS, BACK = 2.0, 6.0
SERVER = ("--rpm", str(RPM), "--tpm", "100000000", "--window", str(WINDOW_S), "--latency", "0.05")
EXTRA = {
    "requests_per_minute": RPM,
    "window_s": WINDOW_S,
    "arrival_slack": 0.25,
    "burst_seconds": 0.25,
    "max_in_flight": 50,
}


@contextmanager
def changing(service: Simulated) -> Iterator[dict[str, float]]:
    """Halve the limit and restore it, counted from the first arrival; yields when that was done."""
    at: dict[str, float] = {}
    end = threading.Event()

    def change() -> None:
        while not (arrivals := service.arrivals()):
            if end.wait(0.05):
                return
        for name, windows, rpm in (("fell", FALLS, RPM // 2), ("back", BACK, RPM)):
            if end.wait(max(0.0, arrivals[0].time + windows * WINDOW_S - time.time())):
                return
            at[name] = time.time()
            told = httpx.post(f"{service.url.removesuffix('/v1')}/_sim/limits", json={"rpm": rpm})
            told.raise_for_status()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield at
    finally:
        end.set()
        thread.join()


def between(arrivals: Sequence[Arrival], first: float, last: float) -> tuple[int, float]:
    """Return how many were let in between two moments, and the share of those that were refused."""
    found = [a.admitted for a in arrivals if first <= a.time < last]
    return sum(found), 1 - sum(found) / len(found)


@pytest.mark.slow
@pytest.mark.alone
async def test_a_limit_that_the_service_tells_is_kept_and_its_return_is_noticed_at_once(tmp_path: Path):
    with simulated_apart(*SERVER) as service, changing(service) as at:
        state = SqliteState(tmp_path / "state.db")
        done = await dispatched(job(rows(1800), service.url, tmp_path, extra=EXTRA), state)
        await state.close()
        seen = service.arrivals()
    assert done.manifest.good == 1800
    admitted, refused = between(seen, at["fell"] + WINDOW_S, at["back"])
    assert refused < 0.01
    assert admitted >= 0.85 * 3 * RPM / 2
    admitted, refused = between(seen, at["back"] + WINDOW_S, at["back"] + 2 * WINDOW_S)
    assert refused == 0.0
    assert admitted >= 0.9 * RPM


@pytest.mark.slow
@pytest.mark.alone
async def test_a_limit_that_nobody_tells_is_found_and_its_return_within_five_windows(tmp_path: Path):
    with (
        running(tmp_path / "redis") as redis,
        simulated_apart(*SERVER, "--tell-limits", "no") as service,
        changing(service) as at,
    ):
        state = RedisState(connect(redis.url))
        done = await dispatched(job(rows(2700), service.url, tmp_path, extra=EXTRA), state)
        await state.close()
        seen = service.arrivals()
    assert done.manifest.good == 2700
    admitted, refused = between(seen, at["fell"] + WINDOW_S, at["back"])
    # A window of so few requests makes each refusal count for much; test_factor.py has those of a minute.
    assert refused < 0.02
    assert admitted >= 0.75 * 3 * RPM / 2
    admitted, refused = between(seen, at["back"] + 5 * WINDOW_S, at["back"] + 6 * WINDOW_S)
    assert refused == 0.0
    assert admitted >= 0.9 * RPM
