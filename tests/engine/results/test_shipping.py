from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.results import read, resume
from airflow_provider_llmbatch.engine.results.objects import BACK_OFF_S, ObjectFolder
from airflow_provider_llmbatch.errors import StoreError
from tests.engine.results.made import answers, finish, opened, result
from tests.engine.results.unsteady import Unsteady


@pytest.fixture
def files() -> Unsteady:
    return Unsteady()


@pytest.fixture
def reopen(files: Unsteady, tmp_path: Path) -> Callable[..., ObjectFolder]:
    path = f"/{uuid.uuid4().hex}"

    def open_it(**options: Any) -> ObjectFolder:
        values = {"spool_root": tmp_path / "spool", "sleep": lambda _: None, **options}
        return ObjectFolder(f"memory:/{path}", files, path, **values)

    return open_it


def until(there: Callable[[], Any]) -> None:
    """Wait for what a thread does in the background."""
    deadline = time.monotonic() + 10
    while not there():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def spooled(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "spool").glob("*/*"))


def rows_in(folder: ObjectFolder, name: str) -> int:
    with folder.open(name) as file:
        return sum(1 for _ in file)


def parts_of(folder: ObjectFolder) -> list[str]:
    return [name for name in folder.names() if name.startswith("part-")]


def test_a_part_is_stored_as_soon_as_it_has_its_rows(reopen, tmp_path: Path):
    folder = reopen(part_rows=5)
    store = opened(folder, answers(100))
    for index in range(12):
        finish(store, index)
        until(lambda done=index + 1: len(parts_of(reopen())) == done // 5)
    assert [rows_in(folder, name) for name in parts_of(folder)] == [5, 5]
    assert spooled(tmp_path) == ["ledger-00000-1-3.jsonl", "part-00000-1-3.jsonl"]
    store.close()
    assert [rows_in(folder, name) for name in parts_of(folder)] == [5, 5, 2]
    assert spooled(tmp_path) == []


def test_a_part_is_stored_after_its_time_though_nothing_more_comes(reopen):
    store = opened(reopen(part_s=0.2))
    finish(store, 0)
    until(lambda: parts_of(reopen(read_only=True)))
    assert [one.index for one in read.results(reopen(read_only=True))] == [0]
    store.close()


def test_what_stands_in_the_ledger_is_stored_before_the_rows(reopen, files: Unsteady):
    store = opened(reopen(part_rows=2), answers(100))
    for index in range(20):
        finish(store, index)
    store.close()
    kinds = [name.partition("-")[0] for name in files.written if name.startswith(("part", "ledger"))]
    assert kinds[0] == "ledger"
    assert all(before == "ledger" for before, kind in itertools.pairwise(kinds) if kind == "part")


def test_a_store_that_is_slow_does_not_hold_writing_up_and_gets_larger_parts(reopen, files: Unsteady):
    store = opened(reopen(part_rows=10), answers(1000))
    files.open_for_writing.clear()
    began = time.monotonic()
    for index in range(1000):
        finish(store, index)
    assert time.monotonic() - began < 2
    files.open_for_writing.set()
    store.close()
    folder = reopen()
    sizes = [rows_in(folder, name) for name in parts_of(folder)]
    assert sum(sizes) == 1000
    assert len(sizes) < 10
    assert [one.index for one in read.results(folder)] == list(range(1000))


def test_a_fault_that_passes_is_waited_out(reopen, files: Unsteady):
    waits: list[float] = []
    folder = reopen(sleep=waits.append)
    store = opened(folder)
    finish(store, 0)
    files.errors = [OSError("asked for"), TimeoutError(), RuntimeError("a driver's own"), None]
    store.close()
    assert tuple(waits) == BACK_OFF_S[:3]
    assert [one.index for one in read.results(reopen())] == [0]


def test_a_store_that_never_answers_is_asked_again(reopen, files: Unsteady):
    store = opened(reopen(operation_s=0.2, sleep=lambda _: files.open_for_writing.set()))
    finish(store, 0)
    files.open_for_writing.clear()
    store.close()
    assert [one.index for one in read.results(reopen())] == [0]


def test_a_store_that_never_answers_is_given_up(reopen, files: Unsteady):
    store = opened(reopen(operation_s=0.05))
    finish(store, 0)
    files.open_for_writing.clear()
    with pytest.raises(StoreError, match=r"TimeoutError: no answer within 0\.05 s"):
        store.close()
    files.open_for_writing.set()
    assert [one.index for one in read.results(reopen())] == [0]


def test_a_store_that_fails_for_good_stops_the_run_and_loses_nothing(reopen, files: Unsteady, tmp_path: Path):
    store = opened(reopen(part_rows=1))
    files.open_for_writing.clear()
    files.errors = [OSError("the disk is gone")]
    finish(store, 0)
    files.open_for_writing.set()
    until(lambda: store._rows._shipper._failure)
    with pytest.raises(StoreError, match=r"Cannot write .*OSError: the disk is gone.*waits in .*spool"):
        store.add(result(1))
    with pytest.raises(StoreError, match="the disk is gone"):
        store.close()
    with pytest.raises(StoreError, match="the disk is gone"):
        reopen()

    files.errors = [None]
    again = opened(reopen())
    assert again.where.counts() == {Outcome.OK: 2, Outcome.UNSENT: 8}
    assert again.possible_double_paid == 0
    again.close()
    assert spooled(tmp_path) == []


def test_a_store_that_forbids_writing_is_not_asked_again(reopen, files: Unsteady):
    waits: list[float] = []
    store = opened(reopen(sleep=waits.append))
    finish(store, 0)
    files.errors = [PermissionError("read only")]
    with pytest.raises(StoreError, match=r"Not allowed to write .*read only.*Grant the worker access"):
        store.close()
    assert not waits


def test_a_store_without_exclusive_writes_works_as_well(reopen, files: Unsteady):
    folder = reopen(part_rows=2)
    files.errors = [NotImplementedError(), None]
    for fence in (1, 2):
        store = opened(folder, fence=fence)
        finish(store, fence)
        store.close()
        store.compact()
    with pytest.raises(FileExistsError):
        folder.put("part-00000-0-2.jsonl", iter([b"other"]))
    assert [one.index for one in read.results(reopen())] == [1, 2]


def test_two_tries_with_one_number_keep_apart(reopen, tmp_path: Path):
    """It takes two hosts, and a state that forgot the number it gave."""
    one = opened(reopen(), fence=7)
    other = opened(reopen(spool_root=tmp_path / "other host"), fence=7)
    assert (one.fence, other.fence) == (7, 8)
    finish(one, 1)
    finish(other, 2)
    one.close()
    other.close()
    assert [one.index for one in read.results(reopen())] == [1, 2]
    assert resume.highest_fence(reopen(), 0) == 8
