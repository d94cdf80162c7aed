"""On a cohort with planted findings fusion tells more than any modality, and knows what it does not know."""

from __future__ import annotations

import json

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import numpy as np

from airflow_provider_llmbatch.engine.fusion import fit, metrics
from airflow_provider_llmbatch.engine.fusion.launch import Worker
from airflow_provider_llmbatch.engine.fusion.policy import Training
from airflow_provider_llmbatch.errors import InputError
from tests.engine.fusion.conftest import QUIET, SCHEMA, rows_of
from tests.engine.fusion.worth import best_single, read_cohort, worth

pytestmark = pytest.mark.slow


def test_fusion_beats_every_modality_and_absence_is_surer_of_what_it_says_than_zeros(cohort):
    train, test = read_cohort(cohort(95, seed=2)), read_cohort(cohort(64, seed=3))
    found = worth(train, test, seed=0, training=Training(head_epochs=12), frozen=("ct", "wsi", "notes"))
    fused, zeros = found["fused"], found["zero_filled"]
    assert fused["ct+wsi+notes"]["auroc"] >= best_single(fused) + 0.05
    assert fused["half missing"]["log_loss"] <= zeros["half missing"]["log_loss"] - 0.02
    assert fused["half missing"]["auroc"] > 0.8


def test_a_model_that_was_fitted_predicts_what_the_labels_say(cohort, tmp_path, capsys):
    train, test = cohort(48, seed=4), cohort(32, seed=5)
    fit.main(["--source", str(train), "--model", str(tmp_path / "m"), "--schema", json.dumps(SCHEMA)])
    assert "fit: ok, 48 records" in capsys.readouterr().out
    asked = {"source": str(test), "result_path": str(tmp_path / "out"), "schema": SCHEMA}
    manifest = Worker({**asked, "mode": "predict", "model": str(tmp_path / "m")}, QUIET).run(print)
    rows = rows_of(manifest)
    labels = [json.loads(line)["label"] for line in test.read_text().splitlines()]
    assert _auroc([row["scores"][0] for row in rows], labels) > 0.7
    assert all(sum(row["attention"].values()) == pytest.approx(1, abs=1e-4) for row in rows)


def _auroc(scores, labels) -> float:
    said = np.stack([1 - np.asarray(scores), scores], axis=1)
    return metrics.auroc(said, np.asarray(labels)) or 0.0


@pytest.mark.parametrize("labels", [[1, 1], [None, None]])
def test_nothing_is_fitted_without_labels_of_two_kinds(source, tmp_path, labels):
    records = source(*({"id": str(n), "notes": "x", "label": label} for n, label in enumerate(labels)))
    schema = json.dumps({"notes": {"kind": "note"}})
    with pytest.raises(InputError, match="label"):
        fit.main(["--source", str(records), "--model", str(tmp_path / "m"), "--schema", schema])
