"""Sources of records, schemas and specs: what is read, and what is refused with words."""

from __future__ import annotations

import csv
import json

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import numpy as np
import pyarrow
from pyarrow import parquet

from airflow_provider_llmbatch.engine.fusion.cache import Cache
from airflow_provider_llmbatch.engine.fusion.records import read_records, stamp
from airflow_provider_llmbatch.engine.fusion.schema import read_schema
from airflow_provider_llmbatch.engine.fusion.spec import read_spec
from airflow_provider_llmbatch.errors import ConfigurationError, InputError

SCHEMA = read_schema("ct+wsi+notes+facts")
ROWS = [
    {"id": "a", "ct": "a/ct", "wsi": None, "notes": "No lesion.", "label": 1},
    {"id": "b", "wsi": "b.svs", "notes_path": "b.txt", "facts": {"lesion": True}},
]


def test_jsonl_csv_and_parquet_say_the_same(tmp_path):
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with open(tmp_path / "r.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "ct", "wsi", "notes", "notes_path", "facts", "label"])
        writer.writeheader()
        writer.writerows([{**ROWS[0], "facts": ""}, {**ROWS[1], "facts": json.dumps(ROWS[1]["facts"])}])
    parquet.write_table(pyarrow.Table.from_pylist([{**row} for row in ROWS]), tmp_path / "r.parquet")
    one, two = read_records(str(tmp_path / "r.jsonl"), SCHEMA)
    assert one.inputs == {"ct": {"path": str(tmp_path / "a/ct")}, "notes": {"text": "No lesion."}}
    assert two.inputs["notes"] == {"path": str(tmp_path / "b.txt")}
    for name in ("r.csv", "r.parquet"):
        first, second = read_records(str(tmp_path / name), SCHEMA)
        assert (first.id, first.inputs) == ("a", one.inputs)
        assert second.inputs["wsi"] == two.inputs["wsi"]


def test_facts_of_a_dispatch_join_by_id_and_those_of_the_row_go_first(source):
    path = source({"id": "a", "notes": "x"}, {"id": "b", "notes": "x", "facts": {"own": 1}})
    first, second = read_records(str(path), SCHEMA, {"a": {"far": 2}, "b": {"far": 2}})
    assert first.inputs["facts"] == {"value": {"far": 2}}
    assert second.inputs["facts"] == {"value": {"own": 1}}


def test_rows_that_are_no_records_have_a_code_and_keep_their_place(source):
    path = source({"id": "a", "note": "a typing error"}, {"id": "b", "ct": 7}, {"id": [1]})
    path.write_bytes(path.read_bytes() + b"{broken\n")
    found = list(read_records(str(path), SCHEMA))
    assert [record.problem for record in found] == [
        "rec.unknown_field",
        "rec.bad_row",
        "rec.bad_row",
        "rec.bad_row",
    ]
    assert [record.id for record in found] == ["a", "b", "#2", "#3"]


def test_an_id_that_comes_twice_is_refused(source):
    path = source({"id": "a", "notes": "x"}, {"id": "a", "notes": "y"})
    with pytest.raises(InputError, match="same id"):
        list(read_records(str(path), SCHEMA))


@pytest.mark.parametrize("name", ["r.xlsx", "missing.jsonl"])
def test_a_source_that_cannot_be_read_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="source"):
        list(read_records(str(tmp_path / name), SCHEMA))


def test_a_stamp_changes_with_the_row_and_with_its_files(tmp_path, source):
    (tmp_path / "note.txt").write_text("No lesion.")
    (record,) = read_records(str(source({"id": "a", "notes_path": "note.txt"})), SCHEMA)
    before = stamp(record)
    assert stamp(record) == before
    (tmp_path / "note.txt").write_text("A lesion.")
    assert stamp(record) != before


def test_what_is_kept_is_found_by_its_content_and_made_again_when_it_is_cut(tmp_path):
    cache, calls = Cache(tmp_path / "cache"), []
    file = tmp_path / "a.bin"
    file.write_bytes(b"one")

    def decode():
        calls.append(1)
        return np.arange(4)

    for _ in range(2):
        assert (cache.get([file], {"v": 1}, decode) == np.arange(4)).all()
    assert (len(calls), cache.hits, cache.misses) == (1, 1, 1)
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(kept.read_bytes()[:-5])
    cache.get([file], {"v": 1}, decode)
    cache.get([file], {"v": 2}, decode)
    file.write_bytes(b"two")
    cache.get([file], {"v": 1}, decode)
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("ct+mri", "set it to one of"),
        ({}, "neither"),
        ({"id": {"kind": "ct"}}, "plain word"),
        ({"ct": {"kind": "mri"}}, "kind is one of"),
        ({"ct": {"kind": "ct", "voxels": 3}}, "voxels is no option"),
    ],
)
def test_a_schema_that_means_nothing_is_refused(value, words):
    with pytest.raises(ConfigurationError, match=words):
        read_schema(value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mode": "guess"}, "mode is 'guess'"),
        ({"mode": "predict"}, "model is not set"),
        ({"require": ["mri"]}, "require names mri"),
        ({"min_modalities": 4}, "min_modalities is 4"),
        ({"chunk_records": 0}, "chunk_records is 0"),
        ({"dtypes": {"ct": "int8"}}, "dtypes says"),
        ({"colour": 1}, "unknown fields: colour"),
    ],
)
def test_a_spec_that_cannot_be_followed_is_refused(given, words):
    with pytest.raises(ConfigurationError, match=words):
        read_spec({"source": "r.jsonl", "result_path": "/r", **given})


def test_a_spec_survives_json():
    spec = read_spec({"source": "r.jsonl", "result_path": "/r", "require": ["ct"], "schema": "ct+wsi+notes"})
    assert read_spec(json.loads(json.dumps(spec.to_json()))).to_json() == spec.to_json()
