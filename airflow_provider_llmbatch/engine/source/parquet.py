"""Parquet, read in small batches; needs the ``parquet`` extra."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from airflow_provider_llmbatch.engine.source.memory import bad_row, row_of
from airflow_provider_llmbatch.engine.source.row import MAX_ROW_BYTES, OpenFile, Row
from airflow_provider_llmbatch.engine.source.strict import RowProblem
from airflow_provider_llmbatch.engine.source.table import Columns, plain
from airflow_provider_llmbatch.errors import ConfigurationError, InputError

_BATCH_ROWS = 256


class ParquetSource:
    """
    A Parquet file; :class:`Columns` says what its columns mean.

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
        del offset  # row groups are found by the index
        with self._open() as file:
            table = self._table(file)
            columns = Columns(table.schema_arrow.names, self.uri)
            first, groups = _row_groups(table, start)
            batches = table.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups) if groups else ()
            records = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
            for index, record in enumerate(records, start=first):
                if stop is not None and index >= stop:
                    return
                if index >= start:
                    yield self._row(columns, list(record.values()), index)

    def _table(self, file: Any) -> Any:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise ConfigurationError(
                f"{self.uri} needs pyarrow: install airflow-provider-llmbatch[parquet], or give JSONL."
            ) from error
        try:
            return parquet.ParquetFile(file)
        except pyarrow.ArrowInvalid as error:
            raise InputError(f"{self.uri} is no Parquet file ({error}); write it again.") from error

    def _row(self, columns: Columns, cells: list[Any], index: int) -> Row:
        where = f"{self.uri}, row {index}"
        try:
            values = columns.values([plain(cell) for cell in cells])
        except RowProblem as problem:
            return bad_row(index, where, problem, repr(cells).encode())
        return row_of(values, index, where, self._limit)


def _row_groups(table: Any, start: int) -> tuple[int, list[int]]:
    """Return the first row of the row group that holds ``start``, and the groups from there on."""
    first = 0
    for number in range(table.num_row_groups):
        size = table.metadata.row_group(number).num_rows
        if first + size > start:
            return first, list(range(number, table.num_row_groups))
        first += size
    return first, []
