from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.results.objects import ObjectFolder
from airflow_provider_llmbatch.engine.results.shipping import PART_ROWS
from airflow_provider_llmbatch.engine.results.spool import Spool
from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings
from tests.kill.batch import Batch, Driver, driver
from tests.kill.driver import CONCURRENCY
from tests.services import s3_server
from tests.services.s3_server import Bucket

KILLS, ITEMS = 6, 900


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with running(SimulatorSettings(rpm=10**8, tpm=10**11, latency_s=0.01, jitter=0.9)) as url:
        yield url


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_server.running() as started:
        yield started


@pytest.fixture
def tries() -> Iterator[Driver]:
    with driver() as started:
        yield started


def new_batch(service: str, bucket: Bucket, place: Path, name: str) -> Batch:
    told = {
        "url": service,
        "results": f"s3://{bucket.name}/{name}",
        "state": str(place / "state.sqlite"),
        "endpoint": bucket.url,
        "spool": str(place),
    }
    batch = Batch(service, ITEMS, told)
    batch.write_source(place / f"{name}.jsonl", name)
    return batch


def rows_in_spool(host: Path, folder: ObjectFolder) -> int:
    """Return how many rows a killed try has left on a host."""
    spool = Spool(host / "llmbatch-spool", folder.uri)
    return sum(path.read_bytes().count(b"\n") for path in spool.path.glob("part-*"))


@pytest.mark.slow
def test_on_the_same_host_nothing_is_lost_and_only_calls_in_flight_are_paid_twice(
    service: str, bucket: Bucket, tries: Driver, tmp_path: Path
):
    # The store is slow, and now and then it fails.
    bucket.fail({"method": "PUT", "delay_s": 0.1, "times": 10}, {"method": "PUT", "status": 500, "times": 3})
    calls = random.Random(7)
    batch = new_batch(service, bucket, tmp_path, "same")
    for _ in range(KILLS):
        assert tries.run(batch.told, batch.after(calls.randrange(1, ITEMS // KILLS))) == -signal.SIGKILL
        # What the next try on this host finds: parts, and the spool, which opening the folder stores.
        folder = bucket.folder("same", spool_root=tmp_path / "llmbatch-spool")
        assert batch.was_killed(folder) <= CONCURRENCY
    assert tries.run(batch.told) == 0
    again = batch.check(folder)
    assert batch.possible_double_paid(folder) >= again
    assert again > 0, "no kill hit a call in flight, so this shows nothing"


@pytest.mark.slow
def test_on_another_host_the_rows_since_the_last_part_are_paid_again_as_well(
    service: str, bucket: Bucket, tries: Driver, tmp_path: Path
):
    bucket.fail()
    batch = new_batch(service, bucket, tmp_path, "other")
    folder = bucket.folder("other", read_only=True)
    in_spools = 0
    for host in range(4):
        place = tmp_path / f"host-{host}"
        place.mkdir()
        told = {**batch.told, "spool": str(place)}
        if host == 3:
            assert tries.run(told) == 0
            continue
        assert tries.run(told, batch.after(ITEMS // 4)) == -signal.SIGKILL
        found, left = batch.was_killed(folder), rows_in_spool(place, folder)
        assert found <= CONCURRENCY + left
        in_spools += left
    assert len(batch.rows) > PART_ROWS, "no part was stored before a kill, so this shows nothing"
    assert in_spools > 0, "no kill left rows behind, so this shows nothing"
    assert 0 < batch.check(folder) <= CONCURRENCY * batch.kills + in_spools
