from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Outcome, PromptRef
from airflow_provider_llmbatch.engine.results import names, read, resume
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.local import LocalFolder
from airflow_provider_llmbatch.errors import ConfigurationError, InputError, StaleFenceError, StoreError
from tests.engine.results.made import COST, answers, finish, opened, result, send

Reopen = Callable[[], Folder]


def run(folder: Folder, *indexes: int, **options: Any) -> None:
    """Do what a try does that finishes some items."""
    store = opened(folder, **options)
    for index in indexes:
        finish(store, index)
    store.close()
    store.compact()


def done(folder: Folder) -> list[int]:
    return [one.index for one in read.results(folder)]


def test_another_input_is_refused_and_named(tmp_path: Path):
    folder = LocalFolder(tmp_path)
    run(folder, 0)
    other = answers(fingerprint="e" * 64, model="gpt-4o", prompt=PromptRef(name="sort", version="2", sha="1"))
    with pytest.raises(InputError, match=r"answer another input \(changed: prompt, model\)"):
        opened(folder, other)
    with pytest.raises(InputError, match=r"changed: rows or params"):
        opened(folder, answers(fingerprint="e" * 64))
    assert done(folder) == [0]


def test_another_host_is_refused_where_files_serve_one(tmp_path: Path):
    folder = LocalFolder(tmp_path)
    run(folder, 0, what=answers(host="worker-1"))
    with pytest.raises(
        ConfigurationError, match=r"Host 'worker-1' wrote .* this is 'worker-2'.*shared_filesystem"
    ):
        opened(folder, answers(host="worker-2"))
    run(folder, 1, what=answers(host="worker-1"))
    run(folder, 2, what=answers(host=""))
    assert done(folder) == [0, 1, 2]


def test_fail_refuses_results_that_were_there(tmp_path: Path):
    folder = LocalFolder(tmp_path)
    run(folder, 0, on_existing="fail")
    with pytest.raises(ConfigurationError, match="on_existing is 'fail'"):
        opened(folder, on_existing="fail")


def test_restart_pays_for_all_items_again_and_keeps_the_bill(reopen: Reopen):
    run(reopen(), 0, 1, 2)
    store = opened(reopen(), answers(fingerprint="e" * 64), on_existing="restart")
    assert store.where.counts() == {Outcome.UNSENT: 10}
    assert store.totals.cost.usd == 3 * COST.usd
    finish(store, 1)
    store.close()
    store.compact()
    assert done(reopen()) == [1]
    run(reopen(), 2, what=answers(fingerprint="e" * 64))
    assert done(reopen()) == [1, 2]
    assert resume.spent(reopen())[1].usd == 5 * COST.usd


@pytest.mark.parametrize("mode", ["restart", "fail"])
def test_a_retry_goes_on_whatever_a_cleared_task_is_to_do(mode, reopen: Reopen):
    run(reopen(), 0)
    if mode == "fail":
        reopen().remove(names.chunk_file(0))
        for part in [*resume.files_of(reopen(), 0)[0], *resume.files_of(reopen(), 0)[1]]:
            reopen().remove(str(part))
    task = answers(occasion="dag/run/task/-1, not cleared")
    run(reopen(), 1, 2, what=task, on_existing=mode)
    retry = opened(reopen(), task, on_existing=mode)
    assert [index for index in range(10) if retry.where.is_final(index)] == [1, 2]
    retry.close()

    cleared = replace(task, occasion="dag/run/task/-1, cleared once")
    if mode == "fail":
        with pytest.raises(ConfigurationError, match="on_existing is 'fail'"):
            opened(reopen(), cleared, on_existing=mode)
    else:
        assert opened(reopen(), cleared, on_existing=mode).where.counts() == {Outcome.UNSENT: 10}


def test_a_reply_that_was_not_booked_is_booked_before_a_restart_drops_its_row(reopen: Reopen):
    first = opened(reopen())
    send(first, 0)
    first.add(result(0))
    first.close()
    store = opened(reopen(), on_existing="restart")
    assert (store.totals.cost, store.possible_double_paid) == (COST, 0)
    store.close()
    assert resume.spent(reopen())[1].usd == COST.usd


def test_a_try_from_before_a_restart_mixes_nothing_into_what_came_after(reopen: Reopen):
    stale = opened(reopen())
    finish(stale, 0)
    fresh = opened(reopen(), answers(fingerprint="e" * 64), on_existing="restart")
    finish(stale, 1, output="stale")
    finish(fresh, 1, output="fresh")
    stale.close()
    with pytest.raises(StaleFenceError, match="began anew"):
        stale.compact()
    fresh.close()
    fresh.compact()
    assert [(one.index, one.output) for one in read.results(reopen())] == [(1, "fresh")]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"schema_version":1,"fingerprint":null,"start":0,"stop":10,"since":0}',
        b"\xff",
    ],
    ids=repr,
)
def test_a_chunk_file_that_cannot_be_read_is_not_taken_for_none(content: bytes, reopen: Reopen):
    run(reopen(), 0)
    folder = reopen()
    folder.put(names.chunk_file(0), iter([content]), replace=True)
    with pytest.raises(StoreError, match=r"chunk-00000\.json cannot be read"):
        opened(folder)
    with pytest.raises(StoreError, match=r"chunk-00000\.json cannot be read"):
        list(read.lines(folder))


def test_results_of_another_version_of_the_format_are_refused(tmp_path: Path):
    folder = LocalFolder(tmp_path)
    run(folder, 0)
    path = tmp_path / names.chunk_file(0)
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2}))
    with pytest.raises(InputError, match="has schema_version 2, this version of the package writes 1"):
        opened(folder)


def test_rows_without_the_file_that_says_what_they_answer_are_not_taken_for_none(reopen: Reopen):
    run(reopen(), 0)
    folder = reopen()
    folder.remove(names.chunk_file(0))
    with pytest.raises(StoreError, match=r"holds results of chunk 0, but chunk-00000\.json.* is gone"):
        opened(folder, answers())
    run(reopen(), 0, what=answers(chunk=1))


def test_what_the_results_answer_stands_in_the_chunk_file(tmp_path: Path):
    run(LocalFolder(tmp_path), 0, what=answers(host="worker-1", occasion="dag/run/task/-1"))
    assert json.loads((tmp_path / "chunk-00000.json").read_text()) == {
        "schema_version": 1,
        "chunk": 0,
        "start": 0,
        "stop": 10,
        "fingerprint": "f" * 64,
        "source": "items.jsonl",
        "prompt": "sort@1",
        "model": "gpt-4o-mini",
        "schema_digest": "none",
        "host": "worker-1",
        "whole": "",
        "occasion": "dag/run/task/-1",
        "since": 0,
    }
