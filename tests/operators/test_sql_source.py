from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.operators.sql_source import FETCH_ROWS

SQL = "SELECT ticket, body AS text FROM tickets ORDER BY ticket"


@pytest.fixture
def database(tmp_path, monkeypatch) -> Path:
    """Return a database with three tickets, which the connection ``db`` leads to."""
    path = tmp_path / "tickets.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE tickets (ticket TEXT PRIMARY KEY, body TEXT)")
        connection.executemany("INSERT INTO tickets VALUES (?, ?)", [("c", "3"), ("a", "1"), ("b", "2")])
    monkeypatch.setenv("AIRFLOW_CONN_DB", json.dumps({"conn_type": "sqlite", "host": str(path)}))
    return path


def asked(stage, **arguments):
    return stage.split(**{"sql": SQL, "sql_conn_id": "db", "sql_key": "ticket", **arguments})


def test_rows_of_a_query_are_split_and_dispatched_by_their_key(stage, database):
    chunks = stage.run(asked(stage, token_budget=240, model_params={"max_tokens": 100}))
    assert len(chunks) == 2
    for place, chunk in enumerate(chunks):
        stage.run(stage.dispatch(chunk=chunk, model_params={"max_tokens": 100}), map_index=place)
    assert [(row.id, row.outcome) for row in stage.rows()] == [
        ("a", Outcome.OK),
        ("b", Outcome.OK),
        ("c", Outcome.OK),
    ]


def test_all_chunks_see_the_rows_as_they_were_when_they_were_split(stage, database):
    (chunk,) = stage.run(asked(stage))
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM tickets")
    manifest = stage.run(stage.dispatch(chunk=chunk))
    assert manifest["counts"] == {"ok": 3}


def test_the_query_may_be_a_template(stage, database):
    sql = "SELECT ticket AS id, body AS text FROM tickets WHERE body >= '{{ 1 + 1 }}' ORDER BY 1"
    stage.run(asked(stage, sql=sql, sql_key="id"))
    stored = (stage.results_path / "d" / "r" / "s" / "items.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in stored] == ["b", "c"]


def test_more_rows_than_one_fetch_are_all_there(stage, database):
    with closing(sqlite3.connect(database)) as connection, connection:
        many = [(f"m{number:05}", "x") for number in range(2 * FETCH_ROWS)]
        connection.executemany("INSERT INTO tickets VALUES (?, ?)", many)
    (chunk,) = stage.run(asked(stage, token_budget=10**9))
    plan = json.loads(Path(chunk["plan"]).read_text())
    assert plan["items"] == 2 * FETCH_ROWS + 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sql": "SELECT ticket FROM tickets"}, "has no ORDER BY"),
        ({"sql_conn_id": None}, "sql_conn_id is not"),
        ({"sql_key": "nothing"}, "the key is 'nothing'"),
        ({"source": "items.jsonl"}, "source and sql are both set"),
        ({"sql": None}, "source is empty"),
        ({"sql_conn_id": "llmbatch_default"}, "is no database hook"),
    ],
)
def test_a_query_that_cannot_be_used_fails_the_task_for_good(stage, database, arguments, words):
    with pytest.raises(AirflowFailException, match=words):
        stage.run(asked(stage, **arguments))
