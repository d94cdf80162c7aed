"""What the columns of a table mean: the same for CSV and Parquet."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from airflow_provider_llmbatch.engine.items import Json
from airflow_provider_llmbatch.engine.source.parse import KEYS, PAYLOADS, listed
from airflow_provider_llmbatch.engine.source.strict import RowProblem, read_json
from airflow_provider_llmbatch.errors import InputError

_JSON_COLUMNS = frozenset({"vars", "messages", "params", "metadata"})
_PLAIN_COLUMNS = frozenset(KEYS) - frozenset(PAYLOADS)


class Columns:
    """
    The columns of a table, checked.

    With a column ``prompt``, ``messages`` or ``vars`` that one is the item's content, and every other column
    must be one of an item's keys. Without them, every column that is not one of those keys is a variable.

    :param header: names of the columns.
    :param uri: name of the table, for messages.
    :param strict: whether text that cannot be read is a problem in a column of JSON or numbers; else it stays
        text, for the item's own check.
    :raises InputError: when the header cannot be used.
    """

    def __init__(self, header: Sequence[str], uri: str, *, strict: bool = True) -> None:
        self._strict = strict
        self._header = tuple(header)
        payloads = [name for name in self._header if name in PAYLOADS]
        self._variables = frozenset() if payloads else frozenset(self._header) - _PLAIN_COLUMNS
        problem = self._problem(payloads)
        if problem:
            raise InputError(f"{uri}: the header {problem}")

    def _problem(self, payloads: list[str]) -> str | None:
        repeated = sorted({name for name in self._header if self._header.count(name) > 1})
        unknown = [name for name in self._header if name not in KEYS]
        if any(not name.strip() for name in self._header):
            return "has a column without a name; name every column."
        if repeated:
            return f"names {listed(repeated)} more than once; name every column differently."
        if payloads and unknown:
            return (
                f"has {' and '.join(payloads)}, so {listed(unknown)} would be lost; move them into a column "
                f"'metadata' as JSON, or rename '{payloads[0]}' if it is a variable of the prompt template."
            )
        if not payloads and not self._variables:
            return (
                f"has {listed(self._header) or 'no column'} and nothing to send; add a column 'prompt', or "
                "one for each variable of the prompt template."
            )
        return None

    def values(self, cells: Sequence[Json]) -> dict[str, Json]:
        """
        Return a row as the values of an item.

        :raises RowProblem: when the row does not fit the header.
        """
        if len(cells) != len(self._header):
            raise RowProblem(f"has {len(cells)} cells, but the header names {len(self._header)} columns")
        row = dict(zip(self._header, cells, strict=True))
        values = {name: self._cell(name, cell) for name, cell in row.items() if name not in self._variables}
        if self._variables:
            values["vars"] = {name: cell for name, cell in row.items() if name in self._variables}
        return values

    def _cell(self, name: str, cell: Json) -> Json:
        if cell is None or (cell == "" and name != "prompt"):
            return None
        if not isinstance(cell, str):
            return cell
        try:
            return _read(name, cell)
        except RowProblem:
            if self._strict:
                raise
            return cell


def plain(value: Any) -> Json:
    """
    Return a cell as JSON; a struct's missing fields come as None and are left out.

    :raises RowProblem: for bytes.
    """
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise RowProblem("has a column of bytes; give text")
    return value


def _read(name: str, cell: str) -> Json:
    if name == "seq":
        return _integer(cell)
    return _json(name, cell) if name in _JSON_COLUMNS else cell


def _integer(cell: str) -> int:
    try:
        return int(cell)
    except ValueError as error:
        raise RowProblem("has a seq that is no integer; number the turns of a group from 0") from error


def _json(name: str, cell: str) -> Json:
    try:
        return read_json(cell)
    except RowProblem as problem:
        raise RowProblem(f"has a column '{name}' that {problem}") from problem
