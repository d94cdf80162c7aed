from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException
from pyarrow import parquet

from airflow_provider_llmbatch.engine.results.foreign import STATUSES
from airflow_provider_llmbatch.operators.export import LLMBatchExportOperator

SCHEMA = {
    "type": "object",
    "properties": {"label": {"type": "string"}, "score": {"type": "number"}},
    "required": ["label", "score"],
    "additionalProperties": False,
}


@pytest.fixture
def manifest(stage):
    """Return the manifest of four items, of which the last one is refused."""
    stage.service.play({"match": {"contains": "number 3"}, "reply": {"refusal": "I would rather not."}})
    task = stage.dispatch(source=stage.items(4), output_type=SCHEMA, max_failed=1.0)
    return stage.run(task)


def export(stage, manifest, **arguments):
    given = {"task_id": "e", "dag": stage.dag(), "manifests": manifest, "output_type": SCHEMA}
    return stage.run(LLMBatchExportOperator(**{**given, **arguments}))


def test_results_leave_as_parquet_with_a_column_for_each_plain_field(stage, manifest):
    told = export(stage, manifest)
    assert told["path"].endswith("/d/r/e/results.parquet")
    rows = parquet.read_table(told["path"]).to_pylist()
    assert [row["id"] for row in rows] == ["i0", "i1", "i2", "i3"]
    assert rows[0]["output.label"] == json.loads(rows[0]["output"])["label"]
    assert isinstance(rows[0]["output.score"], float)
    assert (rows[3]["outcome"], rows[3]["output.label"]) == ("refused", None)


@pytest.mark.parametrize("name", ["out.csv", "OUT.CSV"])
def test_the_ending_of_the_path_says_the_format(stage, manifest, name):
    told = export(stage, manifest, path=str(stage.folder / "new" / name))
    with open(told["path"], newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert (told["format"], told["rows"], len(rows)) == ("csv", 4, 4)
    assert rows[2]["id"] == "i2"


def test_whole_rows_and_rows_of_common_ai_are_lines_of_json(stage, manifest):
    whole = export(stage, manifest, format="jsonl")
    foreign = export(stage, manifest, path=str(stage.folder / "theirs.jsonl"), format="common_ai")
    ours = [json.loads(line) for line in Path(whole["path"]).read_text().splitlines()]
    theirs = [json.loads(line) for line in Path(foreign["path"]).read_text().splitlines()]
    assert [row["id"] for row in ours] == [row["custom_id"] for row in theirs]
    assert [STATUSES[row["outcome"]] for row in ours] == [row["status"] for row in theirs]


def test_only_the_outcomes_that_are_asked_for_are_exported(stage, manifest):
    assert export(stage, manifest, outcomes=["refused"])["rows"] == 1
    assert export(stage, manifest, outcomes="ok")["rows"] == 3


def test_a_table_takes_results_by_their_id_and_again_changes_nothing(stage, manifest, monkeypatch):
    path = stage.folder / "out.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE done (id TEXT PRIMARY KEY, outcome TEXT, output_label TEXT)")
    monkeypatch.setenv("AIRFLOW_CONN_DB", json.dumps({"conn_type": "sqlite", "host": str(path)}))
    for _ in range(2):
        told = export(stage, manifest, table="done", sql_conn_id="db")
        assert told == {"table": "done", "rows": 4}
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = list(connection.execute("SELECT id, outcome, output_label IS NULL FROM done ORDER BY id"))
    assert rows == [("i0", "ok", 0), ("i1", "ok", 0), ("i2", "ok", 0), ("i3", "refused", 1)]


def test_chunks_of_one_folder_are_exported_once_and_in_order(stage):
    chunks = stage.run(stage.split(source=stage.items(6), token_budget=60, max_chunks=3))
    assert len(chunks) == 3
    manifests = [stage.run(stage.dispatch(chunk=c), map_index=place) for place, c in enumerate(chunks)]
    told = export(stage, manifests, format="jsonl", output_type=None)
    ids = [json.loads(line)["id"] for line in Path(told["path"]).read_text().splitlines()]
    assert ids == [f"i{number}" for number in range(6)]
    one = export(stage, [manifests[1], manifests[1]], output_type=None)
    assert one["rows"] == manifests[1]["items"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"format": "xlsx"}, "format is 'xlsx'"),
        ({"path": "results.csv"}, "a relative path"),
        ({"path": "/tmp/folder/"}, "add the name of the file"),
        ({"table": "t"}, "sql_conn_id is not"),
        ({"sql_conn_id": "db"}, "table is not"),
        ({"outcomes": ["great"]}, "outcomes is 'great'"),
        ({"manifests": "nothing"}, "give what dispatch tasks return"),
    ],
)
def test_an_argument_that_cannot_be_used_fails_the_task_for_good(stage, manifest, arguments, words):
    with pytest.raises(AirflowFailException, match=words):
        export(stage, manifest, **arguments)
