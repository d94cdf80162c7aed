from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings
from tests.kill.batch import Batch, Driver, driver
from tests.kill.driver import CONCURRENCY

KILLS, ITEMS = 50, 300


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with running(SimulatorSettings(rpm=10**8, tpm=10**11, latency_s=0.03, jitter=0.9)) as url:
        yield url


@pytest.fixture(scope="module")
def tries() -> Iterator[Driver]:
    with driver() as started:
        yield started


def new_batch(service: str, place: Path, name: str) -> Batch:
    told = {"url": service, "results": str(place / name), "state": str(place / "state.sqlite")}
    batch = Batch(service, ITEMS, told)
    batch.write_source(place / f"{name}.jsonl", name)
    return batch


@pytest.mark.slow
def test_killed_anywhere_a_batch_loses_nothing_and_pays_twice_only_for_calls_in_flight(
    service: str, tries: Driver, tmp_path: Path
):
    """P78."""
    whole = new_batch(service, tmp_path, "whole")
    began = time.monotonic()
    assert tries.run(whole.told) == 0
    lasts = time.monotonic() - began
    assert whole.check(open_folder(whole.told["results"])) == 0

    when = random.Random(20260)
    killed = paid_twice = batches = 0

    def some_time() -> None:
        time.sleep(when.uniform(0, lasts))

    while killed < KILLS:
        batch = new_batch(service, tmp_path, f"batch-{batches}")
        folder = open_folder(batch.told["results"])
        # A kill may come before the first byte of a try is written, and after its last.
        while (status := tries.run(batch.told, some_time if killed < KILLS else None)) != 0:
            assert status == -signal.SIGKILL
            killed += 1
            assert batch.was_killed(folder) <= CONCURRENCY
        again = batch.check(folder)
        assert batch.possible_double_paid(folder) >= again
        paid_twice += again
        batches += 1
    assert paid_twice > 0, "no kill hit a call in flight, so this shows nothing"
    assert batches > 5
