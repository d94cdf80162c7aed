"""The shared limits, taken from by several processes at once."""

from __future__ import annotations

import multiprocessing
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airflow_provider_llmbatch.simulator.arrivals import max_in_window, use_of_limit
from tests.contracts import processes
from tests.contracts.states import IMPLEMENTATIONS, SLACK_S, WINDOW_S, Store, needs, opened, requests, scope

SPAWN = multiprocessing.get_context("spawn")
SHARED = sorted(name for name in IMPLEMENTATIONS if name != "sqlite-memory")


@pytest.fixture(params=SHARED)
async def address(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    async with IMPLEMENTATIONS[request.param](tmp_path) as store:
        yield address_of(store)


def address_of(store: Store) -> str:
    assert store.address is not None
    return store.address


def run_all(target, calls: list[tuple]) -> list[list[float]]:
    """Run a function in several processes at once and return what each has reported."""
    results = SPAWN.Queue()
    workers = [SPAWN.Process(target=target, args=(*call, results)) for call in calls]
    for worker in workers:
        worker.start()
    reported = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    return reported


def test_processes_get_exactly_the_limit_together(address: str):
    limited = [scope(requests(100, window_s=600.0, burst_s=700.0), owner=f"task/{n}") for n in range(3)]
    reported = run_all(processes.take_until_refused, [(address, mine) for mine in limited])
    assert sum(map(len, reported)) == 100


@pytest.mark.alone
def test_no_window_exceeds_the_limit_and_nearly_all_of_it_is_used_by_all(address: str):
    limited = [scope(requests(60, burst_s=0.2), owner=f"task/{n}") for n in range(3)]
    reported = run_all(processes.take_for, [(address, mine, 5.0) for mine in limited])
    granted = [(at, 1) for given in reported for at in given]
    assert max_in_window(granted, WINDOW_S + SLACK_S) <= 60
    # All of what the longer window allows, but for the quantum that rounding costs.
    assert use_of_limit(granted, WINDOW_S + SLACK_S, 60) >= 0.95
    shares = [len(given) / len(granted) for given in reported]
    assert min(shares) > 0.15


async def test_the_calls_of_a_killed_process_are_free_for_its_next_try(address: str):
    state, results = opened(address), SPAWN.Queue()
    mine = scope(max_in_flight=3, owner="task", fence=await state.next("task"))
    worker = SPAWN.Process(target=processes.take_and_hang, args=(address, mine, 3, results))
    worker.start()
    assert len(results.get(timeout=60)) == 3
    worker.kill()
    worker.join()
    other = scope(max_in_flight=3, owner="other")
    assert (await state.take(other, needs(1))).waits_for == "in_flight"
    await state.next("task")
    assert len((await state.take(other, needs(1))).grants) == 1
    await state.close()
