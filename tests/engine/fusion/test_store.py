"""Where a run is stored, on a disk and on an object store, and how its progress is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion.loops import Account, Progress
from airflow_provider_llmbatch.engine.fusion.store import Store, window_name
from airflow_provider_llmbatch.errors import StoreError


@pytest.fixture(params=["disk", "memory"])
def store(request, tmp_path) -> Store:
    return Store(str(tmp_path / "run") if request.param == "disk" else f"memory:/{tmp_path}/run")


def test_a_window_is_done_only_with_all_of_its_parts(store):
    assert store.done(0) is None
    sha = store.put("part-00000.jsonl", b"{}\n")
    account: dict[str, Any] = {"window": 0, "parts": {"part-00000.jsonl": sha}}
    store.put(window_name(0), json.dumps(account).encode())
    assert store.done(0) == account
    store.put("part-00000.jsonl", b"{}\n{}\n")
    assert store.done(0) is None
    assert store.get("part-00000.jsonl") == b"{}\n{}\n"
    assert store.get("part-00001.jsonl") is None


def test_what_a_kill_has_left_half_written_is_cleared(tmp_path):
    (tmp_path / ".part-00000.jsonl.17.draft").write_bytes(b"{")
    Store(str(tmp_path)).put("part-00000.jsonl", b"{}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["part-00000.jsonl"]


def test_a_place_that_cannot_be_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(str(tmp_path / "file" / "run"))


def test_progress_is_told_every_two_seconds_and_at_the_end_with_the_time_to_go():
    now, told = [0.0], []
    progress = Progress(told.append, Clocks(now=lambda: now[0]), 100)
    for second, ok in ((1, 20), (2, 40), (3, 50), (5, 100)):
        now[0] = second
        progress.tell(Account(total=100, ok=ok, resumed=10))
    assert [(event["done"], event["per_s"], event["eta_s"]) for event in told] == [(40, 15, 4), (100, 18, 0)]
