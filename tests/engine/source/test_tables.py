from __future__ import annotations

import datetime
import io
from decimal import Decimal
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from airflow_provider_llmbatch.engine.items import BadItem, Item
from airflow_provider_llmbatch.engine.source import Row, open_source
from airflow_provider_llmbatch.engine.source.csv import CsvSource
from airflow_provider_llmbatch.errors import InputError


def read_csv(content: bytes, **limits: int) -> list[Row]:
    return list(CsvSource("data.csv", lambda: io.BytesIO(content), **limits).rows())


def write_parquet(path: Path, rows: list[dict[str, object]], **options: object) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
    return path


def test_columns_that_are_no_keys_of_an_item_are_variables():
    (row,) = read_csv(b"id,name,city,reference\n7,Ada,Oslo,good\n")
    assert row.item == Item(index=0, id="7", vars={"name": "Ada", "city": "Oslo"}, reference="good")


def test_a_column_prompt_is_the_prompt_and_json_columns_are_read():
    content = b'prompt,params,metadata,group,seq\nhi,"{""temperature"": 0}","[1]",g,2\n'
    (row,) = read_csv(content)
    assert row.item == Item(
        index=0, id="#0", prompt="hi", params={"temperature": 0}, metadata=[1], group="g", seq=2
    )


def test_a_column_messages_is_read_as_json():
    (row,) = read_csv(b'messages\n"[{""role"": ""user"", ""content"": ""hi""}]"\n')
    assert row.item.messages == ({"role": "user", "content": "hi"},)


def test_an_empty_cell_of_a_key_is_no_value_and_of_a_variable_is_empty_text():
    (row,) = read_csv(b"id,seq,name\n,,\n,,\n"[:-4])
    assert row.item == Item(index=0, id="#0", vars={"name": ""})


def test_quoted_line_breaks_and_a_byte_order_mark_are_understood():
    rows = read_csv('\ufeffname,city\r\n"Ada\nLovelace",Oslo\r\nBob,"a ""b"", c"\r\n'.encode())
    assert [r.item.vars for r in rows] == [
        {"name": "Ada\nLovelace", "city": "Oslo"},
        {"name": "Bob", "city": 'a "b", c'},
    ]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"name,name\na,b\n", "names 'name' more than once"),
        (b"name,\na,b\n", "has a column without a name"),
        (b"id,reference\na,b\n", "nothing to send; add a column 'prompt'"),
        (b"\n\n", "has no column and nothing to send"),
        (b"prompt,city\na,b\n", "has prompt, so 'city' would be lost; move them into a column 'metadata'"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused(header, words):
    with pytest.raises(InputError, match=words) as caught:
        read_csv(header)
    assert str(caught.value).startswith("data.csv: the header ")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"1,x", "has 2 cells, but the header names 3 columns"),
        (b"1,\xff,{}", "is not UTF-8"),
        (b"1,x,{broken", "has a column 'params' that is no valid JSON"),
        (b"1,,{}", "has an empty prompt"),
    ],
)
def test_a_bad_row_of_a_csv_is_a_bad_item_and_the_next_one_is_read(line, words):
    bad, good = read_csv(b"id,prompt,params\n" + line + b"\n2,hi,\n")
    assert isinstance(bad.item, BadItem)
    assert bad.item.error.message.startswith("data.csv, line 2: the row ")
    assert words in bad.item.error.message
    assert good.item.prompt == "hi"


def test_a_csv_whose_quotes_are_broken_is_refused_with_its_line():
    with pytest.raises(InputError, match=r"data.csv, line 3: the CSV is broken .* mend the quotes"):
        read_csv(b'name\nok\n"a"b\n')


def test_a_csv_with_a_quote_left_open_is_never_loaded_whole():
    with pytest.raises(InputError, match="a line of more than 1,000 characters; is a quote left open"):
        read_csv(b"name\n" + b"x" * 5000, max_row_bytes=1000)


def test_a_cell_may_be_longer_than_the_csv_module_allows_by_itself():
    (row,) = read_csv(b"prompt\n" + b"x" * 300_000 + b"\n")
    assert len(row.item.prompt) == 300_000


def test_parquet_rows_become_items(tmp_path):
    rows = [
        {"id": "a", "vars": {"name": "Ada", "day": datetime.date(2026, 1, 2)}, "metadata": {"n": 1}},
        {"id": "b", "vars": {"name": "Bob", "day": None}, "metadata": None},
    ]
    source = open_source(write_parquet(tmp_path / "items.parquet", rows))
    assert [row.item for row in source.rows()] == [
        Item(index=0, id="a", vars={"name": "Ada", "day": "2026-01-02"}, metadata={"n": 1}),
        Item(index=1, id="b", vars={"name": "Bob"}),
    ]


def test_parquet_columns_may_hold_messages_numbers_and_decimals(tmp_path):
    conversation = [{"role": "user", "content": "hi", "name": None}]
    source = open_source(write_parquet(tmp_path / "chat.parquet", [{"messages": conversation}]))
    assert next(source.rows()).item.messages == ({"role": "user", "content": "hi"},)
    source = open_source(write_parquet(tmp_path / "money.parquet", [{"price": Decimal("1.50"), "n": 3}]))
    assert next(source.rows()).item.vars == {"price": "1.50", "n": 3}


@pytest.mark.parametrize(
    ("cell", "words"), [(b"\x00", "has a column of bytes"), (float("nan"), "cannot be written as JSON")]
)
def test_a_cell_that_json_cannot_hold_makes_a_bad_item(tmp_path, cell, words):
    source = open_source(write_parquet(tmp_path / "items.parquet", [{"x": cell}]))
    assert words in next(source.rows()).item.error.message


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    path = tmp_path / "items.parquet"
    path.write_bytes(b"id,prompt\n")
    with pytest.raises(InputError, match="is no Parquet file"):
        next(open_source(path).rows())


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_can_be_read_from_any_row(tmp_path, kind):
    if kind == "csv":
        path = tmp_path / "items.csv"
        path.write_text("name\n" + "".join(f"n{n}\n" for n in range(1000)))
    else:
        path = write_parquet(
            tmp_path / "items.parquet", [{"name": f"n{n}"} for n in range(1000)], row_group_size=300
        )
    source = open_source(path)
    rows = list(source.rows())
    assert [row.item.vars["name"] for row in rows] == [f"n{n}" for n in range(1000)]
    assert [row.offset for row in rows] == list(range(1000))
    for start, stop in ((0, 3), (299, 301), (650, None), (999, None)):
        assert list(source.rows(start=start, offset=start, stop=stop)) == rows[start:stop]
    assert list(source.rows(start=1000, offset=1000)) == []
