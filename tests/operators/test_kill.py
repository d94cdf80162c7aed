"""A task that is told to end: in time, in order, and with everything stored that was paid."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout

from airflow_provider_llmbatch.engine.manifests import manifests
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.errors import StoppedError

ITEMS, SLOW = 10, 4
#: Of items 6 to 9 no answer comes for as long as a test takes.
NEVER = [{"match": {"contains": f"number {n}"}, "reply": {"delay_s": 60}} for n in range(ITEMS - SLOW, ITEMS)]


def until(there: Callable[[], bool], seconds: float = 20.0) -> None:
    """Look again and again, and give up in the end."""
    give_up = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.02)


def stored(stage) -> int:
    """Return how many items of the running task have a row."""
    folder = open_folder(str(stage.results_path / "d" / "r" / "t"), read_only=True)
    return sum(manifest.good for manifest in manifests(folder))


def half_way(stage) -> None:
    """Wait until all that can be answered is, and the rest is in flight."""
    until(lambda: stored(stage) == ITEMS - SLOW and len(stage.service.arrivals()) == ITEMS)


def killed_half_way(stage, *, on_existing: str = "resume", **instance) -> float:
    """Run a task, kill it half way, and return the seconds from the kill to its end."""
    stage.service.reset()
    stage.service.play(*NEVER)
    task, raised = stage.dispatch(source=stage.items(ITEMS), on_existing=on_existing), []

    def execute() -> None:
        try:
            stage.run(task, **instance)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    half_way(stage)
    began = time.monotonic()
    task.on_kill()
    thread.join(10)
    took = time.monotonic() - began
    (error,) = raised
    assert isinstance(error, StoppedError)
    assert "told to end" in str(error)
    stage.service.play()
    return took


def test_on_kill_ends_within_three_seconds_and_the_next_try_pays_only_for_what_was_in_flight(stage):
    assert killed_half_way(stage) < 3
    assert stored(stage) == ITEMS - SLOW
    value = stage.run(stage.dispatch(source=stage.items(ITEMS)), try_number=2)
    assert value["counts"] == {"ok": ITEMS}
    assert value["resumed"] == ITEMS - SLOW
    assert value["possible_double_paid"] == SLOW
    assert len(stage.service.arrivals()) == ITEMS + SLOW


def test_the_execution_timeout_of_a_task_ends_it_in_order(stage):
    """Airflow raises it in the thread that waits, and calls ``on_kill`` afterwards."""
    stage.service.play(*NEVER)
    task = stage.dispatch(source=stage.items(ITEMS))
    began = time.monotonic()
    with pytest.raises(AirflowTaskTimeout), timeout(2):
        stage.run(task)
    task.on_kill()
    assert time.monotonic() - began < 2 + 3
    assert stored(stage) == ITEMS - SLOW


def test_the_account_of_an_earlier_try_does_not_stand_beside_the_rows_of_a_later_one(stage):
    stage.run(stage.dispatch(source=stage.items(ITEMS)))
    manifest = stage.results_path / "d" / "r" / "t" / "manifest-00000.json"
    assert manifest.exists()
    killed_half_way(stage, on_existing="restart", try_number=2, max_tries=2)
    assert not manifest.exists()


def test_a_kill_before_anything_began_is_no_error_of_its_own(stage):
    stage.dispatch(source=stage.items(1)).on_kill()
