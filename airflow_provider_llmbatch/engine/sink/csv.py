"""CSV in UTF-8 with a header line. A text that a spreadsheet would take for a formula is made plain."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

from airflow_provider_llmbatch.engine.items import Result
from airflow_provider_llmbatch.engine.sink.columns import Column, Value

#: Lines in one piece.
PIECE_ROWS = 1_000

#: How formulas begin, in half and full width; a line break or tab may stand before them.
_FORMULA = re.compile(r"[\t\r\n]|\s*[=+\-@＝＋－＠]")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


def to_csv(results: Iterable[Result], columns: Sequence[Column]) -> Iterator[bytes]:
    """Yield a CSV file of the results, piece by piece."""
    cells = ([column.read(result) for column in columns] for result in results)
    return csv_of([column.name for column in columns], cells)


def csv_of(names: Sequence[str], rows: Iterable[Sequence[Value]]) -> Iterator[bytes]:
    """Yield a CSV file of any rows, piece by piece."""
    rest = iter(rows)
    yield _lines([names])
    while piece := list(itertools.islice(rest, PIECE_ROWS)):
        yield _lines([_cell(value) for value in row] for row in piece)


def _lines(rows: Iterable[Sequence[Value]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _cell(value: Value) -> str | int | float | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value
