"""Two processes of one worker: killed in part and run again, they end where one process ends."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import torch
from safetensors.torch import load_file

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion.launch import Worker
from airflow_provider_llmbatch.engine.fusion.modes import run
from airflow_provider_llmbatch.engine.fusion.spec import read_spec
from airflow_provider_llmbatch.errors import ConfigurationError, StoppedError
from tests.engine.fusion.conftest import QUIET

pytestmark = pytest.mark.slow

SCHEMA = {
    "ct": {"kind": "ct", "shape": [16, 16, 16], "spacing_mm": [8, 18, 18]},
    "wsi": {"kind": "wsi", "patch_px": 32, "max_patches": 2},
}
COUNT, WINDOW = 8, 2


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Return records without notes, of which some lack a CT or a slide."""
    from airflow_provider_llmbatch.simulator.cohort import make_cohort

    records = make_cohort(tmp_path_factory.mktemp("cohort"), COUNT, seed=21)
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    for number, row in enumerate(rows):
        del row["notes"]
        if number % 3 < 2:
            del row[("ct", "wsi")[number % 3]]
    records.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return records


def asked(source: Path, results: Path, **given: Any) -> dict[str, Any]:
    usual = {"schema": SCHEMA, "device": "cpu", "mode": "train", "chunk_records": WINDOW, "batch_size": 4}
    more = {"training": {"head_epochs": 2, "epochs": 2}, "policies": {"ct": {"prune": 0.5}}}
    return {"source": str(source), "result_path": str(results), **usual, **more, **given}


def vectors(manifest: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return what the windows hold, by file and name."""
    parts = sorted(Path(manifest["result_path"]).glob("part-*.safetensors"))
    return {f"{path.name} {name}": value for path in parts for name, value in load_file(path).items()}


def compare(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], most: float) -> None:
    assert {name: value.shape for name, value in found.items()} == {
        name: value.shape for name, value in expected.items()
    }
    for name, value in expected.items():
        assert (found[name] - value).abs().max() <= most, name


def one_killed(worker: Worker) -> list[psutil.Process]:
    """Run a worker, kill its second process when the first says how far it is, and return both."""
    both: list[psutil.Process] = []

    def tell(event: Any) -> None:
        if not both and event["event"] == "training":
            both.extend(psutil.Process(worker.pid).children())
            os.kill(both[1].pid, signal.SIGKILL)

    with pytest.raises(StoppedError, match=r"Process 1 of 2 ended without a word, status -9") as stopped:
        worker.run(tell)
    assert stopped.value.retryable
    return both


def test_two_processes_killed_in_part_and_run_again_end_where_one_does(source, tmp_path):
    alone = run(read_spec(asked(source, tmp_path / "one")), lambda event: None, Clocks())
    spec = asked(source, tmp_path / "two", nproc=2)
    both = one_killed(Worker(spec, QUIET))
    assert len(both) == 2
    assert not [process for process in both if process.is_running()]
    together = Worker(spec, QUIET).run(lambda event: None)
    assert together["counts"] == {**alone["counts"], "resumed": COUNT}
    assert together["processes"] == 2
    assert {key: together[key] for key in ("missing", "patterns")} == {
        key: alone[key] for key in ("missing", "patterns")
    }
    compare(vectors(together), vectors(alone), 1e-5)
    for key in ("steps", "best_step", "labelled"):
        assert together["metrics"][key] == alone["metrics"][key]
    assert together["metrics"]["held_out_loss"] == pytest.approx(alone["metrics"]["held_out_loss"], abs=1e-3)
    # An optimizer makes a step of the gradient's sign alone, so what rounds otherwise is moved otherwise.
    weights = [load_file(Path(each["model"]) / "weights.safetensors") for each in (together, alone)]
    compare(*weights, 2 * 3e-3)


def test_after_a_kill_no_process_is_left_and_nothing_that_they_met_by(source, tmp_path):
    (tmp_path / "tmp").mkdir()
    worker = Worker(asked(source, tmp_path, nproc=2), {**QUIET, "TMPDIR": str(tmp_path / "tmp")})
    both: list[psutil.Process] = []

    def tell(event: Any) -> None:
        if not both:
            both.extend(psutil.Process(worker.pid).children())
            threading.Thread(target=worker.kill).start()

    with pytest.raises(StoppedError, match="told to end"):
        worker.run(tell)
    _, alive = psutil.wait_procs(both, timeout=5)
    assert len(both) == 2
    assert not alive
    assert not list((tmp_path / "tmp").glob("llmbatch-ranks-*"))


def test_a_mistake_is_told_in_the_words_of_one_process(source, tmp_path):
    bare = tmp_path / "records.jsonl"
    bare.write_text('{"id": "a", "ct": "nowhere", "label": 1}\n')
    with pytest.raises(ConfigurationError, match="nproc is 2 and plan_adviser is set"):
        Worker(asked(bare, tmp_path, nproc=2, plan_adviser=True)).run(print)
    with pytest.raises(ConfigurationError, match="nproc is 0"):
        Worker(asked(bare, tmp_path, nproc=0)).run(print)
