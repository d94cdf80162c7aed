from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.results import read, resume
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.local import LocalFolder
from airflow_provider_llmbatch.errors import StoreError
from tests.engine.results.made import COST, answers, book, finish, opened, result, send

ROOT = Path(__file__).parents[3]
Reopen = Callable[[], Folder]


def fill(folder: Folder) -> list[bytes]:
    """Leave two compacted tries' worth of parts, one of them compacted, and return the rows that count."""
    for number, indexes in enumerate(((4, 0, 2), (9, 1), (3, 8, 7, 5, 6))):
        store = opened(folder)
        for index in indexes:
            finish(store, index)
        finish(store, 0, Outcome.UNSENT)
        store.close()
        if number == 0:
            store.compact()
    return list(read.lines(folder))


@pytest.mark.parametrize("step", ["begin", "draft", "put", "retire-1", "retire-2", "retire-3", "retire-4"])
def test_a_kill_while_parts_are_put_together_loses_no_row(step: str, tmp_path: Path):
    folder = LocalFolder(tmp_path)
    before = fill(folder)
    command = [sys.executable, "-m", "tests.engine.results.compacting", str(tmp_path), step]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert list(read.lines(folder)) == before

    drafts = [path for path in tmp_path.iterdir() if path.name.endswith(".draft")]
    assert bool(drafts) == (step == "draft")
    store = opened(folder)
    assert store.where.counts() == {Outcome.OK: 10}
    store.close()
    store.compact()
    assert list(read.lines(folder)) == before
    assert len(resume.files_of(folder, 0)[0]) == 1
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_late_reply_of_a_stale_try_is_adopted(reopen: Reopen):
    stale = opened(reopen(), answers(3), fence=1)
    finish(stale, 0)
    send(stale, 1)
    send(stale, 2)
    newer = opened(reopen(), answers(3), fence=2)
    finish(newer, 1)
    newer.add(result(2, Outcome.UNSENT, attempts=0))
    newer.close()
    newer.compact()

    for index in (1, 2):
        stale.add(result(index, output="late"))
        book(stale, index)
    stale.close()

    third = opened(reopen(), answers(3), fence=3)
    assert third.totals.cost.usd == 4 * COST.usd
    third.close()
    third.compact()
    outputs = {one.index: one.output for one in read.results(reopen())}
    assert outputs == {0: result(0).output, 1: result(1).output, 2: "late"}


class Racing(LocalFolder):
    """A local folder during whose removals, or before whose new parts, somebody else does something."""

    before_removal: Callable[[], None] | None = None
    before_put: Callable[[], None] | None = None

    def put(self, name: str, chunks, *, replace: bool = False) -> None:
        act, self.before_put = self.before_put, None
        content = list(chunks)
        if act is not None and name.startswith("part-"):
            act()
        super().put(name, iter(content), replace=replace)

    def retire(self, read: Mapping[str, int]) -> dict[str, bytes]:
        act, self.before_removal = self.before_removal, None
        if act is not None:
            act()
        return super().retire(read)


def test_a_row_that_comes_between_reading_a_part_and_removing_it_is_kept(tmp_path: Path):
    folder = Racing(tmp_path)
    stale = opened(folder, answers(2))
    finish(stale, 0)
    newer = opened(folder, answers(2))
    newer.close()
    folder.before_removal = lambda: finish(stale, 1)
    assert newer.compact().counts() == {Outcome.OK: 2}
    assert [one.index for one in read.results(folder)] == [0, 1]


def test_when_two_tries_put_the_parts_together_at_once_every_row_is_kept(tmp_path: Path):
    folder = Racing(tmp_path)
    stale = opened(folder, answers(6))
    finish(stale, 0)
    newer = opened(folder, answers(6))
    for index in (1, 2):
        finish(newer, index)

    def stale_ends() -> None:
        finish(stale, 3)
        stale.close()
        stale.compact()
        finish(newer, 4)

    folder.before_put = stale_ends
    third = opened(folder, answers(6))
    third.close()
    third.compact()
    finish(newer, 5)
    newer.close()
    newer.compact()
    assert [one.index for one in read.results(folder)] == [0, 1, 2, 3, 4, 5]


def test_a_running_try_reads_on_when_a_stale_one_has_put_the_parts_together(reopen: Reopen):
    stale = opened(reopen(), fence=1)
    finish(stale, 0)
    finish(stale, 1)
    stale.close()
    running = opened(reopen(), fence=2)
    assert running.row(0) == result(0)
    stale.compact()
    assert running.row(1) == result(1)
    finish(running, 2)
    running.close()
    running.compact()
    assert [one.index for one in read.results(reopen())] == [0, 1, 2]


def test_a_reader_goes_on_where_it_was_when_parts_are_put_together(reopen: Reopen):
    for indexes in ((0, 3), (1, 4), (2, 5)):
        store = opened(reopen(), answers(6))
        for index in indexes:
            finish(store, index)
        store.close()
    reading = read.results(reopen())
    seen = [next(reading).index, next(reading).index]
    store = opened(reopen(), answers(6))
    store.close()
    store.compact()
    assert seen + [one.index for one in reading] == [0, 1, 2, 3, 4, 5]


def test_files_that_never_stay_end_the_reading_with_words(tmp_path: Path):
    class Vanishing(LocalFolder):
        def open(self, name: str):
            if name.startswith("part-"):
                raise FileNotFoundError(name)
            return super().open(name)

    store = opened(LocalFolder(tmp_path))
    finish(store, 0)
    store.close()
    folder = Vanishing(tmp_path)
    with pytest.raises(StoreError, match="change faster than they can be read"):
        list(read.lines(folder))
    with pytest.raises(StoreError, match="change faster than they can be read"):
        opened(folder)
