"""Rows that come one after the other from somewhere else, such as a database's cursor."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from airflow_provider_llmbatch.engine.items import Json
from airflow_provider_llmbatch.engine.source.memory import row_of
from airflow_provider_llmbatch.engine.source.parse import listed
from airflow_provider_llmbatch.engine.source.row import MAX_ROW_BYTES, Row
from airflow_provider_llmbatch.engine.source.strict import RowProblem
from airflow_provider_llmbatch.engine.source.table import Columns, plain
from airflow_provider_llmbatch.errors import InputError

#: Reads a table from its start: the names of its columns, and its rows, in the same order every time.
ReadTable = Callable[[], tuple[Sequence[str], Iterable[Sequence[Any]]]]

_JSON_TYPES = (str, int, float, list, dict, type(None))


class RowsSource:
    """
    A table that is read lazily; :class:`Columns` says what its columns mean.

    :param uri: name of the table, for messages.
    :param read: reads it.
    :param key: column that becomes the items' id; upper and lower case are the same here.
    :param max_row_bytes: largest row as JSON.
    """

    def __init__(
        self, uri: str, read: ReadTable, *, key: str = "id", max_row_bytes: int = MAX_ROW_BYTES
    ) -> None:
        self.uri = uri
        self._read = read
        self._key = key
        self._limit = max_row_bytes

    def rows(self, *, start: int = 0, offset: int = 0, stop: int | None = None) -> Iterator[Row]:
        """
        Yield the rows from ``start``; their offset is their index.

        :raises InputError: when a column cannot be used, or holds values that have no JSON form.
        """
        del offset  # where a row begins is not known beforehand
        for index, values in enumerate(self._values()):
            if stop is not None and index >= stop:
                return
            if index >= start:
                yield row_of(values, index, f"{self.uri}, row {index}", self._limit)

    def lines(self) -> Iterator[bytes]:
        """
        Yield the rows as lines of JSON: a source file with the same items, and the same rows that are none.

        :raises InputError: as :meth:`rows` does.
        """
        # A number that is not finite goes as it is into its line: whoever reads it refuses that row.
        return (json.dumps(values).encode() + b"\n" for values in self._values())

    def _values(self) -> Iterator[dict[str, Json]]:
        header, records = self._read()
        # A text that is no JSON must not stop the other rows: it stays text, and its row is judged with that.
        columns = Columns(self._keyed(header), self.uri, strict=False)
        for index, cells in enumerate(records):
            yield columns.values([self._cell(*named, index) for named in zip(header, cells, strict=True)])

    def _keyed(self, header: Sequence[str]) -> list[str]:
        """Return the names of the columns, the key's as ``id``."""
        keys = [name for name in header if name.lower() == self._key.lower()]
        if len(keys) != 1:
            raise InputError(
                f"{self.uri} has the columns {listed(header)}, and the key is {self._key!r}; select exactly "
                "one column of that name, or name another key."
            )
        return ["id" if name == keys[0] else name for name in header]

    def _cell(self, name: str, cell: Any, index: int) -> Json:
        try:
            value = plain(cell)
        except RowProblem:
            value = cell
        if not isinstance(value, _JSON_TYPES):
            raise InputError(
                f"{self.uri}, row {index}: column {name!r} holds a {type(cell).__name__}, which has no JSON "
                "form. Leave it out of the query, or cast it to text there."
            )
        return value
