"""Twenty-five broken inputs: each with its code, none with its name, and the job ends well."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import numpy as np
import torch

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion.batch import Batch
from airflow_provider_llmbatch.engine.fusion.graph import Fused, FusionGraph
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.launch import Worker
from airflow_provider_llmbatch.engine.fusion.loops import TooManyBadError
from airflow_provider_llmbatch.engine.fusion.modes import run
from airflow_provider_llmbatch.engine.fusion.opening import open_pipeline
from airflow_provider_llmbatch.engine.fusion.pipeline import OutOfMemoryError
from airflow_provider_llmbatch.engine.fusion.records import read_records
from airflow_provider_llmbatch.engine.fusion.spec import read_spec
from airflow_provider_llmbatch.simulator.cohort import write_series, write_slide
from tests.engine.fusion.conftest import QUIET, SCHEMA, quarantine_of, rows_of
from tests.engine.fusion.test_dicom import REFUSED, phantom
from tests.engine.fusion.test_wsi import REFUSED as REFUSED_SLIDES
from tests.engine.fusion.test_wsi import chessboard

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")]

#: Planted wherever a person's name can stand; must not come out anywhere.
NAME = "Quillfeather"
CT_CODES = [
    *("ct.gap", "ct.no_series", "ct.photometric", "ct.modality", "ct.too_few_slices", "ct.duplicate"),
    *("ct.irregular", "ct.tilt", "ct.mixed_size", "ct.mixed_orientation", "ct.mixed_spacing"),
    *("ct.ambiguous_series", "ct.no_rescale", "ct.no_geometry", "ct.no_decoder", "ct.truncated"),
]


def broken_corpus(folder: Path) -> tuple[Path, dict[str, str]]:
    """Write 25 records with one broken modality each and one good one; return them and their codes."""
    rows: list[dict[str, Any]] = []
    codes = {}

    def add(code: str, **given: Any) -> None:
        name = f"r{len(rows):02d}"
        rows.append({"id": name, "notes": "No focal lesion.", **given})
        codes[name] = code

    for code in CT_CODES:
        place = folder / f"{NAME}-{code}"
        made = REFUSED[code][0](place)
        if made != place:
            shutil.copytree(made, place) if made.is_dir() else shutil.copy(made, folder / f"{NAME}.dcm")
        add(code, ct=str(place if place.exists() else folder / f"{NAME}.dcm"))
    for number, (code, make) in enumerate(REFUSED_SLIDES.items()):
        make(folder / f"{NAME}-{number}.tiff")
        add(code, wsi=str(folder / f"{NAME}-{number}.tiff"))
    blank = folder / f"{NAME}-blank.tiff"
    write_slide(blank, np.full((256, 256, 3), 246, np.uint8), 0.5)
    add("wsi.no_tissue", wsi=str(blank))
    write_slide(folder / "good.tiff", chessboard(4), 0.5)
    for code, given in {
        "note.control": {"notes": f"{NAME}\0"},
        "note.empty": {"notes": "  "},
        "note.not_found": {"notes": {"path": f"{NAME}.txt"}},
    }.items():
        add(code, **given, wsi="good.tiff")
    add("rec.unknown_field", patient=NAME)
    return _written(folder, rows), codes


def _written(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def artefacts(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_each_of_25_broken_inputs_has_its_code_and_no_name_comes_out(tmp_path):
    (tmp_path / "in").mkdir()
    records, codes = broken_corpus(tmp_path / "in")
    assert len(codes) == 25
    events = []
    asked = {"source": str(records), "result_path": str(tmp_path / "out"), "schema": SCHEMA}
    manifest = Worker({**asked, "deid": "off"}, QUIET).run(events.append)
    assert {each["id"]: each["code"] for each in quarantine_of(manifest)} == codes
    assert manifest["counts"] == {"total": 25, "ok": 24, "quarantined": 1, "resumed": 0}
    assert len(rows_of(manifest)) == 24
    assert len(json.dumps(manifest)) <= 8 * 1024
    said = {"events": json.dumps(events).encode(), **artefacts(tmp_path / "out")}
    assert not [place for place, content in said.items() if NAME.encode() in content]
    assert not [place for place, content in said.items() if str(tmp_path / "in").encode() in content]


def in_process(records: Path, results: Path, **given: Any) -> dict[str, Any]:
    asked = {"source": str(records), "result_path": str(results), "device": "cpu", **given}
    return run(read_spec(asked), lambda event: None, Clocks())


NOTES = {"notes": {"kind": "note"}}


def test_a_record_that_names_a_person_is_quarantined_unless_the_gate_is_told_otherwise(tmp_path):
    write_series(
        tmp_path / "ct", phantom(), (3, 1, 1), tags={"PatientName": NAME, "PatientIdentityRemoved": "NO"}
    )
    records = _written(tmp_path, [{"id": "a", "ct": "ct", "notes": "No lesion."}])
    schema = {name: SCHEMA[name] for name in ("ct", "notes")}
    refused = in_process(records, tmp_path / "a", schema=schema, max_bad_fraction=1.0)
    warned = in_process(records, tmp_path / "b", schema=schema, deid="warn")
    silent = in_process(records, tmp_path / "c", schema=schema, deid="off")
    assert refused["counts"]["quarantined"] == 1
    assert refused["top_error_codes"] == {"deid.person": 1}
    assert warned["warnings"] == {"deid.person": 1}
    assert (warned["counts"]["ok"], silent["warnings"]) == (1, {})
    assert not [p for p, c in artefacts(tmp_path).items() if "run=" in p and NAME.encode() in c]


def test_too_many_bad_records_stop_the_run_and_keep_what_is_good(source, tmp_path):
    rows = [{"id": str(n), "notes": "No lesion." if n < 8 else " "} for n in range(16)]
    with pytest.raises(TooManyBadError, match=r"1 of 16|4 of 16") as stopped:
        in_process(source(*rows), tmp_path / "out", schema=NOTES, chunk_records=4, max_bad_fraction=0.1)
    assert "note.empty (4)" in str(stopped.value)
    kept = sorted(path.name for path in (tmp_path / "out").glob("run=*/part-*.jsonl"))
    assert kept[:2] == ["part-00000.jsonl", "part-00001.jsonl"]
    assert not list((tmp_path / "out").glob("run=*/manifest.json"))


def test_one_bad_record_is_too_many_when_the_task_says_fail(source, tmp_path):
    records = source({"id": "a", "notes": "x"}, {"id": "b", "notes": " "})
    with pytest.raises(TooManyBadError, match="on_bad_input is fail"):
        in_process(records, tmp_path / "out", schema=NOTES, on_bad_input="fail")


def test_required_modalities_and_their_least_number_decide_who_is_quarantined(tmp_path):
    write_slide(tmp_path / "s.tiff", chessboard(4), 0.5)
    records = _written(
        tmp_path,
        [{"id": "both", "wsi": "s.tiff", "notes": "x"}, {"id": "note", "notes": "x"}, {"id": "none"}],
    )
    schema = {name: SCHEMA[name] for name in ("wsi", "notes")}
    loose = in_process(records, tmp_path / "a", schema=schema, max_bad_fraction=1)
    strict = in_process(records, tmp_path / "b", schema=schema, max_bad_fraction=1, require=["wsi"])
    two = in_process(records, tmp_path / "c", schema=schema, max_bad_fraction=1, min_modalities=2)
    assert [each["code"] for each in quarantine_of(loose)] == ["rec.empty"]
    assert [each["code"] for each in quarantine_of(strict)] == ["rec.required"] * 2
    assert [each["code"] for each in quarantine_of(two)] == ["rec.too_few", "rec.empty"]


class Narrow(FusionGraph):
    """A graph on a device that holds two records."""

    def forward(self, batch: Batch, plan: Plan) -> Fused:
        if batch.size > self.holds:
            raise torch.OutOfMemoryError
        return super().forward(batch, plan)


@pytest.mark.parametrize("holds", [2, 1])
def test_when_memory_runs_out_the_batch_is_halved_once(source, holds):
    records = source(*({"id": str(n), "notes": f"Slice {n}"} for n in range(8)))
    spec = read_spec({"source": str(records), "result_path": "unused", "schema": NOTES})
    pipeline, _ = open_pipeline(spec, Plan(batch=4), Clocks())
    pipeline.graph = Narrow(spec.schema)
    pipeline.graph.holds = holds
    found = list(read_records(spec.source, spec.schema))
    batches = [found[:4], found[4:]]
    if holds == 1:
        with pytest.raises(OutOfMemoryError):
            list(pipeline.steps(batches))
        return
    steps = list(pipeline.steps(batches))
    assert pipeline.halved
    assert [len(step.fused.embedding) for step in steps] == [4, 4]
    assert [len(step.fused.vectors["notes"]) for step in steps] == [4, 4]
