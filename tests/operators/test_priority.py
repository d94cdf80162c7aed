"""Who makes room for others where tasks wait for the same limits."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from contextlib import closing

import pytest

from airflow_provider_llmbatch.errors import StoppedError
from tests.operators.test_kill import until

NORMAL, LOW = 0, 1


@pytest.mark.parametrize(
    ("given", "run_type", "priority"),
    [
        (None, "backfill", LOW),
        (None, "scheduled", NORMAL),
        ("normal", "backfill", NORMAL),
        ("low", "manual", LOW),
        ("{{ params.nothing }}", "backfill", LOW),
    ],
)
def test_a_backfill_stands_behind_all_others_unless_the_task_says_otherwise(
    stage, connect, given, run_type, priority
):
    connect(stage.service.url, requests_per_minute=1)
    task = stage.dispatch(source=stage.items(4), priority=given)

    def execute() -> None:
        with contextlib.suppress(StoppedError):
            stage.run(task, run_type=run_type)

    thread = threading.Thread(target=execute)
    thread.start()

    def in_line() -> list[int]:
        with closing(sqlite3.connect(stage.folder / "state.db")) as state, contextlib.suppress(sqlite3.Error):
            return [row[0] for row in state.execute("SELECT priority FROM turns")]
        return []

    until(in_line)
    assert in_line() == [priority]
    task.on_kill()
    thread.join(10)
    assert not thread.is_alive()
