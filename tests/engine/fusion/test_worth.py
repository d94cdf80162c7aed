"""On a cohort with planted findings fusion tells more than any modality, and knows what it does not know."""

from __future__ import annotations

import json

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

from airflow_provider_llmbatch.engine.fusion import fit
from airflow_provider_llmbatch.engine.fusion.launch import Worker
from airflow_provider_llmbatch.errors import InputError
from tests.engine.fusion.conftest import QUIET, SCHEMA, rows_of
from tests.engine.fusion.worth import auroc, worth

pytestmark = pytest.mark.slow


def test_fusion_beats_every_modality_and_absence_is_surer_of_what_it_says_than_zeros(cohort):
    found = worth(cohort(96, seed=2), cohort(64, seed=3))
    single = max(value for name, value in found["subsets"].items() if "+" not in name)
    assert found["subsets"]["ct+wsi+notes"] >= single + 0.05
    half, zeros = found["half_missing"], found["half_missing_zero_filled"]
    assert half["log_loss"] <= zeros["log_loss"] - 0.02
    assert half["auroc"] > 0.75


def test_a_model_that_was_fitted_predicts_what_the_labels_say(cohort, tmp_path, capsys):
    train, test = cohort(48, seed=4), cohort(32, seed=5)
    fit.main(["--source", str(train), "--model", str(tmp_path / "m"), "--schema", json.dumps(SCHEMA)])
    assert "fit: ok, 48 records" in capsys.readouterr().out
    asked = {"source": str(test), "result_path": str(tmp_path / "out"), "schema": SCHEMA}
    manifest = Worker({**asked, "mode": "predict", "model": str(tmp_path / "m")}, QUIET).run(print)
    rows = rows_of(manifest)
    labels = [json.loads(line)["label"] for line in test.read_text().splitlines()]
    assert auroc([row["scores"][0] for row in rows], labels) > 0.7
    assert all(sum(row["attention"].values()) == pytest.approx(1, abs=1e-4) for row in rows)


@pytest.mark.parametrize("labels", [[1, 1], [None, None]])
def test_nothing_is_fitted_without_labels_of_two_kinds(source, tmp_path, labels):
    records = source(*({"id": str(n), "notes": "x", "label": label} for n, label in enumerate(labels)))
    schema = json.dumps({"notes": {"kind": "note"}})
    with pytest.raises(InputError, match="label"):
        fit.main(["--source", str(records), "--model", str(tmp_path / "m"), "--schema", schema])
