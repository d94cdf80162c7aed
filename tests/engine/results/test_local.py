from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.locations import is_local
from airflow_provider_llmbatch.engine.results import read, resume
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.local import LocalFolder
from airflow_provider_llmbatch.errors import StoreError
from tests.engine.results.made import answers, finish, opened, result, send


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, as a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_stops_the_run_and_leaves_whole_rows(tmp_path: Path):
    folder = LocalFolder(tmp_path)
    store = opened(folder, answers(100))
    done = iter(range(100))

    def write_on() -> None:
        for index in done:
            send(store, index)
            store.add(result(index))

    with (
        largest_file(10_000),
        pytest.raises(StoreError, match=r"Cannot write to .*part-00000-1-0.*Make room"),
    ):
        write_on()
    stored = next(done) - 1
    assert 5 < stored < 100
    assert (tmp_path / "part-00000-1-0.jsonl").read_bytes().endswith(b"\n")
    store.add(result(99))
    store.close()

    again = opened(folder, answers(100))
    assert again.where.counts() == {Outcome.OK: stored + 1, Outcome.UNSENT: 99 - stored}
    # The row that found no room was paid for, and nobody knows its reply.
    assert again.possible_double_paid == 1
    for index in range(stored, 99):
        finish(again, index)
    again.close()
    again.compact()
    assert [one.index for one in read.results(folder)] == list(range(100))


def test_a_full_disk_while_parts_are_put_together_leaves_them_as_they_were(tmp_path: Path):
    folder = LocalFolder(tmp_path)
    for first in (0, 10):
        store = opened(folder, answers(20))
        for index in range(first, first + 10):
            finish(store, index)
        store.close()
    parts = resume.files_of(folder, 0)[0]
    with largest_file(9_000), pytest.raises(StoreError, match="Cannot write"):
        store.compact()
    assert resume.files_of(folder, 0)[0] == parts
    assert len(list(read.lines(folder))) == 20
    assert not [name for name in folder.names() if name.startswith(".")]
    opened(folder, answers(20)).compact()
    assert len(list(read.lines(folder))) == 20


def test_a_folder_that_is_removed_meanwhile_stops_the_run(tmp_path: Path):
    folder = LocalFolder(tmp_path / "results")
    store = opened(folder)
    shutil.rmtree(tmp_path / "results")
    with pytest.raises(StoreError, match="Cannot make"):
        store.add(result(0))
    store.close()
    assert folder.names() == []


def test_a_place_that_cannot_be_a_folder_says_what_to_set(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StoreError, match=r"Cannot make the result folder .*file/results: Not a directory.*result_path"
    ):
        LocalFolder(tmp_path / "file" / "results")


def test_a_file_that_may_not_be_read_is_not_taken_for_absent(tmp_path: Path):
    folder = LocalFolder(tmp_path)
    finish(opened(folder), 0)
    (tmp_path / "part-00000-1-0.jsonl").unlink()
    (tmp_path / "part-00000-1-0.jsonl").mkdir()
    with pytest.raises(StoreError, match=r"part-00000-1-0\.jsonl cannot be read: Is a directory"):
        folder.open("part-00000-1-0.jsonl")


def test_a_folder_that_cannot_be_listed_is_not_taken_for_empty(tmp_path: Path):
    folder = LocalFolder(tmp_path / "results")
    (tmp_path / "results").rmdir()
    (tmp_path / "results").write_text("")
    with pytest.raises(StoreError, match="cannot be listed: Not a directory"):
        folder.names()


def test_a_look_makes_nothing(tmp_path: Path):
    folder = LocalFolder(tmp_path / "results", read_only=True)
    assert folder.names() == []
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
def test_a_path_and_a_file_url_are_the_same_place(scheme: str, tmp_path: Path):
    folder = open_folder(f"{scheme}{tmp_path}/results")
    assert is_local(f"{scheme}{tmp_path}")
    assert isinstance(folder, LocalFolder)
    assert folder.uri == str(tmp_path / "results")


def test_a_url_is_elsewhere():
    assert not is_local("s3://bucket/results")
    assert not is_local("memory://results")


def test_where_names_cannot_be_linked_a_taken_name_is_still_noticed(tmp_path: Path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    folder = LocalFolder(tmp_path)
    folder.put("a.json", iter([b"one"]))
    with pytest.raises(FileExistsError):
        folder.put("a.json", iter([b"two"]))
    assert (tmp_path / "a.json").read_bytes() == b"one"
    assert folder.names() == ["a.json"]
