from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Result
from airflow_provider_llmbatch.engine.sink.columns import columns
from airflow_provider_llmbatch.engine.sink.table import BATCH_ROWS, upsert
from airflow_provider_llmbatch.errors import ConfigurationError, StoreError

DOCUMENT = {"properties": {"label": {"type": "string"}}}
TABLE = """
create table r (
    id text primary key, outcome text, "index" integer, output_label text, usd numeric, mine text
)
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "db.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(TABLE)
    return path


def write(database: Path, results: Any, table: str = "r") -> int:
    connection = sqlite3.connect(database)
    try:
        return upsert(
            connection, table, results, columns(DOCUMENT), placeholder="?", quote=lambda name: f'"{name}"'
        )
    finally:
        connection.close()


def rows(database: Path, what: str = 'id, outcome, "index", output_label, mine') -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection, connection:
        return list(connection.execute(f"select {what} from r order by id"))


def result(id: str, index: int = 0, **fields: Any) -> Result:
    return Result(**{"index": index, "id": id, "outcome": Outcome.OK, "output": {"label": "x"}, **fields})


def test_columns_that_the_table_has_are_filled_and_others_left_alone(database):
    assert write(database, [result("a", 7, cost=Cost(usd=Decimal("0.000001")))]) == 1
    assert rows(database) == [("a", "ok", 7, "x", None)]
    assert rows(database, "usd") == [(0.000001,)]


def test_writing_again_changes_nothing_and_newer_outcomes_replace_older_ones(database):
    many = [result(f"i{n:04}", n) for n in range(BATCH_ROWS + 10)]
    assert write(database, many) == write(database, many) == BATCH_ROWS + 10
    assert len(rows(database)) == BATCH_ROWS + 10
    write(database, [result("i0003", 3, outcome=Outcome.REFUSED, output=None)])
    assert rows(database)[3] == ("i0003", "refused", 3, None, None)
    assert len(rows(database)) == BATCH_ROWS + 10


def test_of_two_rows_with_one_id_the_later_one_stays(database):
    write(database, [result("a", 0), result("a", 1)])
    assert rows(database, 'id, "index"') == [("a", 1)]


def test_a_failure_half_way_leaves_the_table_as_it_was(database):
    write(database, [result("a")])

    def breaking() -> Iterator[Result]:
        yield from (result(f"i{n}", n) for n in range(BATCH_ROWS + 1))
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write(database, breaking())
    assert [id for (id,) in rows(database, "id")] == ["a"]


def test_an_id_is_data_and_never_sql(database):
    evil = "x'); drop table r; --"
    write(database, [result(evil)])
    assert rows(database, "id") == [(evil,)]


@pytest.mark.parametrize("name", ["r; drop table r", "", 'r"', "a.b.c.d", "r --", "r\n"])
def test_a_table_name_that_is_none_is_refused(database, name):
    with pytest.raises(ConfigurationError, match="give a plain name"):
        write(database, [result("a")], name)


def test_a_table_that_is_not_there_is_refused_with_the_statement_that_makes_it(database):
    with pytest.raises(StoreError, match=r"no such table.*CREATE TABLE absent \(id"):
        write(database, [result("a")], "absent")


def test_a_table_without_an_id_is_refused(database):
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("create table q (outcome text)")
    with pytest.raises(ConfigurationError, match="it needs one named id"):
        write(database, [result("a")], "q")
