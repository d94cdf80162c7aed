"""The worker: killed anywhere it goes on, killed with its task it is gone; a poisoned fork is no matter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion import modes
from airflow_provider_llmbatch.engine.fusion.launch import Worker
from airflow_provider_llmbatch.engine.fusion.spec import read_spec
from airflow_provider_llmbatch.errors import ConfigurationError, InputError, StoppedError
from tests.engine.fusion.conftest import QUIET, SCHEMA, rows_of

pytestmark = pytest.mark.slow

COUNT, WINDOW = 24, 6


def spec(records: Path, results: Path, **given: Any) -> dict[str, Any]:
    usual = {"schema": SCHEMA, "chunk_records": WINDOW, "batch_size": 4, "device": "cpu"}
    return {"source": str(records), "result_path": str(results), **usual, **given}


def run(records: Path, results: Path, **given: Any) -> dict[str, Any]:
    return Worker(spec(records, results, **given), QUIET).run(lambda event: None)


def in_process(records: Path, results: Path) -> dict[str, Any]:
    return modes.run(read_spec(spec(records, results)), lambda event: None, Clocks())


def until(there: Callable[[], Any], seconds: float = 60.0) -> Any:
    give_up = time.monotonic() + seconds
    while not (found := there()):
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.01)
    return found


def windows(results: Path) -> list[str]:
    return sorted(path.name for path in results.glob("run=*/window-*.json"))


def content(results: Path) -> dict[str, bytes]:
    """Return every file that must not depend on how a run went."""
    (folder,) = results.glob("run=*")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


def killed_when(worker: Worker, there: Callable[[], Any]) -> None:
    """Run a worker, and kill it the hard way as soon as something is there."""

    def watch() -> None:
        until(lambda: there() or (worker.pid and not psutil.pid_exists(worker.pid)))
        os.kill(worker.pid, signal.SIGKILL)

    watcher = threading.Thread(target=watch)
    watcher.start()
    with pytest.raises(StoppedError, match="without a word") as stopped:
        worker.run(lambda event: None)
    assert stopped.value.retryable
    watcher.join()


def test_a_run_that_was_killed_three_times_ends_with_the_same_bytes(cohort, tmp_path):
    records = cohort(COUNT, seed=11, missing=0.3)
    once = run(records, tmp_path / "undisturbed")
    assert once["counts"] == {"total": COUNT, "ok": COUNT, "quarantined": 0, "resumed": 0}
    results = tmp_path / "killed"
    points = [
        lambda: list(results.glob("run=*/plan.json")),
        lambda: list(results.glob("run=*/part-00001.jsonl")),
        lambda: list(results.glob("run=*/window-00002.json")),
    ]
    for point in points:
        killed_when(Worker(spec(records, results), QUIET), point)
    done = len(windows(results))
    last = run(records, results)
    assert last["counts"]["resumed"] == done * WINDOW
    assert done >= 3
    assert content(results) == content(tmp_path / "undisturbed")
    assert [row["index"] for row in rows_of(last)] == list(range(COUNT))


def test_a_window_whose_part_is_damaged_is_done_again_and_a_changed_input_is_another_run(cohort, tmp_path):
    records = cohort(COUNT, seed=11, missing=0.3)
    small = tmp_path / "records.jsonl"
    lines = records.read_text().splitlines()[: 2 * WINDOW]
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row.update({name: str(records.parent / row[name]) for name in ("ct", "wsi") if name in row})
    small.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = in_process(small, tmp_path / "out")
    before = content(tmp_path / "out")
    part = Path(first["result_path"]) / "part-00000.safetensors"
    part.write_bytes(part.read_bytes()[:-8])
    again = in_process(small, tmp_path / "out")
    assert again["counts"]["resumed"] == WINDOW
    assert content(tmp_path / "out") == before
    rows[0]["notes"] = "Another note."
    small.write_text("".join(json.dumps(row) + "\n" for row in rows))
    other = in_process(small, tmp_path / "out")
    assert other["run_fingerprint"] != first["run_fingerprint"]
    assert other["counts"]["resumed"] == 0


def group_of(pid: int) -> list[int]:
    return [each.pid for each in psutil.process_iter() if _group(each.pid) == pid]


def _group(pid: int) -> int | None:
    try:
        found = os.getpgid(pid)
        return None if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else found
    except (ProcessLookupError, psutil.NoSuchProcess):
        return None


def test_after_a_kill_nothing_of_the_worker_is_left(cohort, tmp_path):
    worker = Worker(spec(cohort(COUNT, seed=11, missing=0.3), tmp_path), QUIET)
    raised: list[BaseException] = []

    def execute() -> None:
        try:
            worker.run(lambda event: None)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    until(lambda: list(tmp_path.glob("run=*/plan.json")))
    assert group_of(worker.pid)
    began = time.monotonic()
    worker.kill()
    assert time.monotonic() - began < 5
    assert not group_of(worker.pid)
    thread.join(5)
    assert isinstance(raised[0], StoppedError)
    with pytest.raises(StoppedError, match="told to end"):
        worker.run(lambda event: None)


TASK = """
import json, sys
from airflow_provider_llmbatch.engine.fusion.launch import Worker
worker = Worker(json.loads(sys.argv[1]))
print(worker.run(lambda event: print(worker.pid, flush=True))["counts"]["ok"])
"""


def test_a_worker_whose_task_is_gone_goes_too(cohort, tmp_path):
    asked = json.dumps(spec(cohort(COUNT, seed=11, missing=0.3), tmp_path))
    task = subprocess.Popen(
        [sys.executable, "-c", TASK, asked], stdout=subprocess.PIPE, env=os.environ | QUIET
    )
    pid = int(task.stdout.readline())
    task.kill()
    task.communicate()
    until(lambda: not group_of(pid), 5)


FORKED = """
import json, os, sys
import torch
torch.set_num_threads(2)
for _ in range(3):
    torch.ones(512, 512) @ torch.ones(512, 512)
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
from airflow_provider_llmbatch.engine.fusion.launch import Worker
os._exit(0 if Worker(json.loads(sys.argv[1])).run(print)["counts"]["ok"] == 4 else 1)
"""


def test_a_fork_of_a_process_that_has_used_torch_ends_well(source, tmp_path):
    rows = [{"id": str(n), "notes": f"Nodule of {n} mm."} for n in range(4)]
    asked = spec(source(*rows), tmp_path / "out", schema={"notes": {"kind": "note"}})
    done = subprocess.run([sys.executable, "-c", FORKED, json.dumps(asked)], timeout=60, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"mode": "predict"}, ConfigurationError, "model is not set"),
        ({"mode": "predict", "model": "/nowhere/model"}, ConfigurationError, "cannot be read"),
        ({"source": "/nowhere/records.jsonl"}, InputError, "source cannot be read"),
        ({"device": "cuda"}, ConfigurationError, "torch finds none"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(source, tmp_path, given, kind, words):
    asked = spec(source({"id": "a", "notes": "No lesion."}), tmp_path, schema={"notes": {"kind": "note"}})
    with pytest.raises(kind, match=words):
        modes.run(read_spec({**asked, **given}), print, Clocks())
    assert not list(tmp_path.glob("run=*"))


def test_what_a_worker_says_of_a_bad_spec_is_raised_in_its_words(tmp_path):
    with pytest.raises(ConfigurationError, match="model is not set"):
        run(tmp_path / "records.jsonl", tmp_path / "out", mode="predict")


def test_a_missing_library_is_named_with_what_to_install(source, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')")
    asked = spec(source({"id": "a", "notes": "x"}), tmp_path / "out")
    with pytest.raises(ConfigurationError, match=r"needs torch.*install airflow-provider-llmbatch\[fusion\]"):
        Worker(asked, {"PYTHONPATH": str(hidden)}).run(print)
