"""CSV with a header line, in UTF-8."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import BinaryIO

from airflow_provider_llmbatch.engine.source.memory import bad_row, row_of
from airflow_provider_llmbatch.engine.source.row import MAX_ROW_BYTES, OpenFile, Row
from airflow_provider_llmbatch.engine.source.strict import RowProblem
from airflow_provider_llmbatch.engine.source.table import Columns
from airflow_provider_llmbatch.errors import InputError

#: What the decoder leaves of a byte that is not UTF-8.
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


class CsvSource:
    """
    A CSV file; :class:`Columns` says what its columns mean.

    :param uri: name of the file, for messages.
    :param open_file: opens it at its first byte.
    :param max_row_bytes: largest row that is read.
    """

    def __init__(self, uri: str, open_file: OpenFile, *, max_row_bytes: int = MAX_ROW_BYTES) -> None:
        self.uri = uri
        self._open = open_file
        self._limit = max_row_bytes

    def rows(self, *, start: int = 0, offset: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Yield the rows from ``start``; their offset is their index."""
        del offset  # quoted line breaks make it necessary to read from the start
        # the module's own limit of 128 KiB a cell is too small for documents, and it has no other home
        csv.field_size_limit(max(csv.field_size_limit(), self._limit))
        with self._open() as file, _as_text(file) as text:
            for index, (line, columns, cells) in enumerate(self._records(text)):
                if stop is not None and index >= stop:
                    return
                if index >= start:
                    yield self._row(columns, cells, index, f"{self.uri}, line {line}")

    def _records(self, text: io.TextIOWrapper) -> Iterator[tuple[int, Columns, list[str]]]:
        reader = csv.reader(self._lines(text), strict=True)
        try:
            columns = Columns(next(reader, []), self.uri)
            line = reader.line_num + 1
            for cells in reader:
                if cells:
                    yield line, columns, cells
                line = reader.line_num + 1
        except csv.Error as error:
            # where the next row begins is not known any more, so this cannot be one bad row
            raise InputError(
                f"{self.uri}, line {reader.line_num}: the CSV is broken ({error}); mend the quotes there."
            ) from error

    def _lines(self, text: io.TextIOWrapper) -> Iterator[str]:
        while line := text.readline(self._limit + 1):
            if len(line) > self._limit:
                raise InputError(
                    f"{self.uri} has a line of more than {self._limit:,} characters; is a quote left open? "
                    "Mend it, or give the rows as JSONL."
                )
            yield line

    def _row(self, columns: Columns, cells: list[str], index: int, where: str) -> Row:
        try:
            if any(not cell.isascii() and _NOT_UTF8.search(cell) for cell in cells):
                raise RowProblem("is not UTF-8; save the file as UTF-8")
            values = columns.values(cells)
        except RowProblem as problem:
            raw = "\x1f".join(cells).encode(errors="surrogateescape")
            return bad_row(index, where, problem, raw)
        return row_of(values, index, where, self._limit)


def _as_text(file: BinaryIO) -> io.TextIOWrapper:
    """Decode; bytes that are not UTF-8 come through as half surrogates, so that only their row is bad."""
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
