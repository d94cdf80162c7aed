from __future__ import annotations

import datetime
import sqlite3
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import BadItem, Item
from airflow_provider_llmbatch.engine.source import RowsSource, open_source
from airflow_provider_llmbatch.errors import InputError


def table(header: list[str], *rows: tuple[Any, ...], key: str = "id") -> RowsSource:
    return RowsSource("sql of db", lambda: (header, iter(rows)), key=key)


def stored(source: RowsSource, folder: Path) -> list[Item | BadItem]:
    """Return the items of the file that a source's lines make."""
    path = folder / "items.jsonl"
    path.write_bytes(b"".join(source.lines()))
    return [row.item for row in open_source(path).rows()]


def items(source: RowsSource) -> list[Item | BadItem]:
    return [row.item for row in source.rows()]


def test_the_key_becomes_the_id_and_other_columns_are_variables():
    source = table(["Ticket_ID", "body"], (7, "hello"), (9, "bye"), key="ticket_id")
    assert items(source) == [
        Item(index=0, id="7", vars={"body": "hello"}),
        Item(index=1, id="9", vars={"body": "bye"}),
    ]


def test_a_file_of_the_rows_has_the_same_items(tmp_path):
    cells = ("k", "text", '{"max_tokens": 5}', '{"from": "db"}')
    source = table(["id", "prompt", "params", "metadata"], cells)
    expected = Item(index=0, id="k", prompt="text", params={"max_tokens": 5}, metadata={"from": "db"})
    assert items(source) == stored(source, tmp_path) == [expected]


def test_values_of_a_database_get_their_json_form(tmp_path):
    id = uuid.UUID(int=1)
    source = table(["id", "price", "day", "n"], (id, Decimal("1.50"), datetime.date(2026, 1, 2), None))
    expected = Item(index=0, id=str(id), vars={"price": "1.50", "day": "2026-01-02", "n": None})
    assert items(source) == stored(source, tmp_path) == [expected]


@pytest.mark.parametrize(
    ("header", "cells", "words"),
    [
        (["id", "prompt"], ("b", None), "has none of vars, prompt and messages"),
        (["id", "prompt", "params"], ("b", "x", "{broken"), "has text as params"),
        (["id", "messages"], ("b", "no list"), "has text as messages"),
        (["id", "prompt", "group", "seq"], ("b", "x", "g", "one"), "as seq"),
        (["id", "text"], ("b", "half \ud83d"), "half of a surrogate pair"),
    ],
)
def test_one_broken_row_is_one_bad_item_there_and_in_the_file(tmp_path, header, cells, words):
    source = table(header, cells)
    for (found,) in (items(source), stored(source, tmp_path)):
        assert isinstance(found, BadItem)
        assert words in found.error.message


def test_a_number_that_is_not_finite_spoils_its_own_row_only(tmp_path):
    source = table(["id", "score"], ("a", 1.0), ("b", float("nan")), ("c", 2.0))
    for found in (items(source), stored(source, tmp_path)):
        assert [type(item) for item in found] == [Item, BadItem, Item]
        assert [item.index for item in found] == [0, 1, 2]


def test_a_column_without_a_json_form_is_refused_by_name():
    with pytest.raises(InputError, match=r"row 1: column 'photo' holds a bytes.*cast it to text"):
        items(table(["id", "photo"], (1, "x"), (2, b"\x00")))


@pytest.mark.parametrize("header", [["body"], ["id", "ID", "body"]])
def test_a_table_without_exactly_one_key_is_refused(header):
    with pytest.raises(InputError, match="exactly one column of that name"):
        items(table(header, ("x",) * len(header)))


def test_rows_are_read_as_they_are_needed():
    read = []

    def endless() -> Any:
        for number in range(10**9):
            read.append(number)
            yield number, f"text {number}"

    source = RowsSource("db", lambda: (["id", "text"], endless()))
    assert [row.item.index for row in source.rows(start=2, stop=5)] == [2, 3, 4]
    assert len(read) <= 6


def test_a_cursor_is_such_a_table():
    database = sqlite3.connect(":memory:")
    database.executescript("create table t (id integer, body text); insert into t values (2, 'b'), (1, 'a')")

    def read() -> Any:
        cursor = database.execute("select id, body from t order by id")
        return [column[0] for column in cursor.description], cursor

    source = RowsSource("db", read)
    first = items(source)
    assert [(item.id, item.vars) for item in first] == [("1", {"body": "a"}), ("2", {"body": "b"})]
    assert items(source) == first
    database.close()
