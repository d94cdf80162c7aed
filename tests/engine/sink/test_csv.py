from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Result
from airflow_provider_llmbatch.engine.sink.columns import columns
from airflow_provider_llmbatch.engine.sink.csv import PIECE_ROWS, to_csv

DOCUMENT = {"properties": {"x": {"type": "string"}, "n": {"type": "integer"}, "b": {"type": "boolean"}}}


def read(*results: Result) -> list[dict[str, str]]:
    content = b"".join(to_csv(results, columns(DOCUMENT)))
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def result(**output: object) -> Result:
    return Result(index=0, id="a", outcome=Outcome.OK, output=output, cost=Cost(usd=Decimal("1E-7")))


def test_cells_are_read_back_as_they_were():
    (row,) = read(result(x='two\nlines, "quoted"', n=-3, b=True))
    assert (row["output.x"], row["output.n"], row["output.b"]) == ('two\nlines, "quoted"', "-3", "true")
    assert (row["usd"], row["error"]) == ("0.0000001", "")


@pytest.mark.parametrize(
    "text",
    ['=HYPERLINK("http://x")', "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1"],
)
def test_a_text_that_a_spreadsheet_would_run_is_made_plain(text):
    (row,) = read(result(x=text))
    assert row["output.x"] == f"'{text}"


def test_an_id_is_guarded_as_well():
    assert read(Result(index=0, id="=1+1", outcome=Outcome.UNSENT))[0]["id"] == "'=1+1"


@pytest.mark.parametrize("text", ["-5", "-0.25", "1e-3", "a=b", "", "e-mail@x"])
def test_numbers_and_plain_texts_stay_as_they_are(text):
    assert read(result(x=text))[0]["output.x"] == text


def test_a_long_file_comes_in_pieces_under_one_header():
    results = [Result(index=n, id=f"i{n}", outcome=Outcome.UNSENT) for n in range(2 * PIECE_ROWS + 1)]
    assert len(list(to_csv(results, columns()))) == 4
    assert [row["id"] for row in read(*results)] == [f"i{n}" for n in range(2 * PIECE_ROWS + 1)]
