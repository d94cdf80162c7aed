"""Training from a source to a model: killed anywhere it ends with the same bytes, and says what it did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import torch
from safetensors.torch import load_file

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion.calibrate import scales_of
from airflow_provider_llmbatch.engine.fusion.checkpoint import Checkpoints
from airflow_provider_llmbatch.engine.fusion.launch import Worker
from airflow_provider_llmbatch.engine.fusion.modes import run
from airflow_provider_llmbatch.engine.fusion.policy import read_policies
from airflow_provider_llmbatch.engine.fusion.schema import read_schema
from airflow_provider_llmbatch.engine.fusion.spec import read_spec
from airflow_provider_llmbatch.engine.fusion.store import Store
from airflow_provider_llmbatch.errors import ConfigurationError, InputError
from tests.engine.fusion.conftest import QUIET, rows_of
from tests.engine.fusion.test_worker import killed_when

SCHEMA = {
    "ct": {"kind": "ct", "shape": [16, 16, 16], "spacing_mm": [8, 18, 18]},
    "wsi": {"kind": "wsi", "patch_px": 32, "max_patches": 2},
}
COUNT = 12


@pytest.fixture(scope="module")
def pictures(cohort, tmp_path_factory) -> Path:
    """Return records without notes, some of which lack a CT or a slide; two have no label."""
    records = cohort(COUNT, seed=31)
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    for number, row in enumerate(rows):
        del row["notes"]
        row.update({name: str(records.parent / row[name]) for name in SCHEMA})
        if number % 4 < 2:
            del row[("ct", "wsi")[number % 4]]
        row["label"] = None if number in (3, 7) else row["label"]
    path = tmp_path_factory.mktemp("pictures") / "records.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def asked(source: Path, results: Path, **given: Any) -> dict[str, Any]:
    usual = {"schema": SCHEMA, "device": "cpu", "mode": "train", "batch_size": 2}
    more = {"training": {"head_epochs": 2, "epochs": 8, "checkpoint_steps": 1}}
    return {"source": str(source), "result_path": str(results), **usual, **more, **given}


def in_process(spec: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    return run(read_spec(spec), lambda event: events.append(dict(event)), Clocks()), events


def weights(manifest: dict[str, Any]) -> bytes:
    return (Path(manifest["model"]) / "weights.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(pictures, tmp_path_factory):
    return in_process(asked(pictures, tmp_path_factory.mktemp("once")))


@pytest.mark.slow
def test_a_training_that_was_killed_and_whose_newest_checkpoint_is_damaged_ends_with_the_same_bytes(
    pictures, undisturbed, tmp_path
):
    spec = asked(pictures, tmp_path)
    killed_when(Worker(spec, QUIET), lambda: list(tmp_path.glob("run=*/ckpt-5/state.json")))
    (folder,) = tmp_path.glob("run=*")
    newest = max(int(path.parent.name.removeprefix("ckpt-")) for path in folder.glob("ckpt-*/state.json"))
    damaged = folder / f"ckpt-{newest}" / "ct.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-4])
    manifest, events = in_process(spec)
    assert weights(manifest) == weights(undisturbed[0])
    assert manifest["model_digest"] == undisturbed[0]["model_digest"]
    assert manifest["metrics"]["damaged_checkpoints"] == [newest]
    assert [event["step"] for event in events if event["event"] == "checkpoint_damaged"] == [newest]
    assert manifest["counts"]["resumed"] == COUNT


@pytest.mark.slow
def test_a_training_says_what_it_did_and_its_model_predicts(pictures, undisturbed, tmp_path):
    manifest, _ = undisturbed
    metrics = manifest["metrics"]
    assert len(json.dumps(manifest)) < 8 * 1024
    assert {name: metrics[name] for name in ("classes", "labelled", "unlabelled")} == {
        "classes": 2,
        "labelled": COUNT - 2,
        "unlabelled": 2,
    }
    assert metrics["steps"] == 8 * 4
    assert metrics["head"]["steps"] == 2 * 4
    folder = Path(manifest["model"])
    assert json.loads((folder / "model.json").read_text())["about"]["classes"] == [0, 1]
    first = load_file(folder / "weights.safetensors")
    assert {name.partition(".")[0] for name in first} == {"encoders", "projections", "fusion"}
    asked_again = {**asked(pictures, tmp_path), "mode": "predict", "model": str(folder)}
    del asked_again["training"]
    rows = rows_of(in_process(asked_again)[0])
    assert all(0 <= row["scores"][0] <= 1 for row in rows)
    kept = {path.name for path in Path(manifest["result_path"]).glob("ckpt-*")}
    assert 2 <= len(kept) <= 4
    assert not [path for path in Path(manifest["result_path"]).rglob("*") if path.suffix in (".pt", ".pkl")]


@pytest.mark.slow
def test_a_restart_takes_no_checkpoint_and_a_changed_policy_is_another_run(pictures, undisturbed, tmp_path):
    quick = {"training": {"head_epochs": 1, "epochs": 1}}
    first, _ = in_process(asked(pictures, tmp_path, **quick))
    again, _ = in_process(asked(pictures, tmp_path, on_existing="restart", **quick))
    assert weights(again) == weights(first)
    frozen = {"policies": {name: {"frozen": True} for name in SCHEMA}}
    other, _ = in_process(asked(pictures, tmp_path, **quick, **frozen))
    assert other["run_fingerprint"] != first["run_fingerprint"]
    assert other["metrics"]["steps"] == 4
    assert not list(Path(other["result_path"]).glob("ckpt-*"))


@pytest.mark.slow
def test_half_of_the_channels_go_in_the_middle_and_a_training_goes_on_from_there(pictures, tmp_path):
    spec = asked(
        pictures, tmp_path, policies={"ct": {"prune": 0.5}}, training={"head_epochs": 1, "epochs": 2}
    )
    whole, _ = in_process(spec)
    bytes_of_whole = weights(whole)
    metrics = whole["metrics"]
    assert [metrics[name]["steps"] for name in ("head", "encoders", "pruned-head")] == [4, 4, 4]
    assert metrics["steps"] == 4
    folder = Path(whole["result_path"])
    for path in folder.glob("pruned-ckpt-*"):  # as a kill in the last stage leaves it
        shutil.rmtree(path)
    (folder / "pruned-head-4" / "state.json").unlink()
    again, _ = in_process(spec)
    assert weights(again) == bytes_of_whole
    shape = load_file(Path(again["model"]) / "weights.safetensors")[
        "encoders.ct.blocks.3.second.weight"
    ].shape
    assert shape[:2] == (64, 64)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"epochs": 0, "head_epochs": 0}, "both 0"),
        ({"epochs": -1}, "epochs is -1"),
        ({"learning_rate": 0}, "learning_rate is 0"),
        ({"modality_dropout": 1.0}, r"modality_dropout is 1\.0"),
        ({"noise": -1}, "noise is -1"),
        ({"speed": 1}, "training is {'speed': 1}; give a mapping of head_epochs, epochs"),
    ],
)
def test_a_training_that_cannot_be_done_is_refused_in_words(given, words):
    with pytest.raises(ConfigurationError, match=words):
        read_spec({"source": "x", "result_path": "y", "training": given})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mri": {}}, "policies names mri; the schema has ct, wsi, notes"),
        ({"ct": {"speed": 1}}, "'ct': give a mapping of dtype, checkpoint, frozen"),
        ({"ct": {"dtype": "int8"}}, "'ct': dtype is 'int8'"),
        ({"ct": {"frozen": "yes"}}, "'ct': frozen is 'yes'; give a bool"),
        ({"ct": {"clip": 0}}, "'ct': clip is 0; give a number above 0"),
        ({"ct": {"prune": 0.9}}, r"'ct': prune is 0\.9; give a share from 0 to 0\.5"),
        ({"notes": {"prune": 0.5, "frozen": False}}, "'notes': prune is 0.5; only encoders of ct and wsi"),
        ("all", "policies is no mapping"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_refused_in_words(given, words):
    with pytest.raises(ConfigurationError, match=words):
        read_policies(given, read_schema("ct+wsi+notes"))


def test_text_is_frozen_and_pictures_are_trained_unless_a_policy_says_otherwise():
    policies = read_policies({"wsi": {"frozen": True, "clip": 2}}, read_schema("ct+wsi+notes+facts"))
    assert {name: policy.frozen for name, policy in policies.items()} == {
        "ct": False,
        "wsi": True,
        "notes": True,
        "facts": False,
    }
    assert policies["wsi"].clip == 2


@pytest.mark.slow
def test_a_label_that_the_model_does_not_know_stops_an_evaluation(pictures, undisturbed, tmp_path):
    rows = [json.loads(line) for line in pictures.read_text().splitlines()]
    rows[2]["label"] = "perhaps"
    other = tmp_path / "records.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {**asked(other, tmp_path / "out"), "mode": "evaluate", "model": undisturbed[0]["model"]}
    with pytest.raises(InputError, match=r"1 of 10 labels are none of the model's 2 classes"):
        in_process(spec)


@pytest.mark.parametrize("place", ["disk", "memory://checkpoints"])
def test_checkpoints_are_kept_as_long_as_something_refers_to_them(tmp_path, place):
    store = Store(str(tmp_path) if place == "disk" else place)
    checkpoints = Checkpoints(store)
    tensors = {"ct": {"weight": torch.ones(2)}}
    for step, best in ((0, 0), (1, 1), (2, 1), (3, 1), (4, 1)):
        checkpoints.put(step, tensors, {"best_step": best})
    assert sorted(store.folders("ckpt-")) == ["ckpt-1", "ckpt-3", "ckpt-4"]
    assert checkpoints.newest().step == 4
    assert checkpoints.newest().tensors["ct"]["weight"].tolist() == [1, 1]
    store.put("ckpt-1/ct.safetensors", b"")
    assert checkpoints.newest() is None
    assert set(checkpoints.damaged) == {1}


def test_scales_bring_down_what_is_too_sure_and_leave_alone_what_was_not_seen():
    chance = torch.Generator().manual_seed(0)
    targets = (torch.rand(400, generator=chance) < 0.75).long()
    sure = torch.full((400, 1), 4.0)  # says 0.98 where 0.75 come true
    scales = scales_of([(sure, targets, torch.ones(400, dtype=torch.int64))], 2)
    assert torch.sigmoid(4.0 * scales[1]) == pytest.approx(0.75, abs=0.03)
    assert scales[[0, 2]].tolist() == [1.0, 1.0]
    few = scales_of([(sure[:2], torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64))], 1)
    assert few[1] < 3
