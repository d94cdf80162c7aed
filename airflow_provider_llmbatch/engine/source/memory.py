"""Rows that are in memory already, such as the XCom of an earlier task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from airflow_provider_llmbatch.engine.identity import canonical_json
from airflow_provider_llmbatch.engine.items import Json
from airflow_provider_llmbatch.engine.source.parse import bad_item, to_item
from airflow_provider_llmbatch.engine.source.row import MAX_ROW_BYTES, Row
from airflow_provider_llmbatch.engine.source.strict import RowProblem, refuse_half_characters
from airflow_provider_llmbatch.errors import InputError


class MemorySource:
    """
    A sequence of mappings, each like a line of JSONL.

    :param values: the rows.
    :param max_row_bytes: largest row as JSON.
    """

    uri = "rows"

    def __init__(self, values: Sequence[Mapping[str, Json]], *, max_row_bytes: int = MAX_ROW_BYTES) -> None:
        if isinstance(values, Mapping) or not isinstance(values, Sequence):
            raise InputError(
                f"The source is a {type(values).__name__}; give a path, a URL or a list of rows."
            )
        if not values:
            raise InputError("The source is an empty list of rows; give at least one item.")
        self._values = values
        self._limit = max_row_bytes

    def rows(self, *, start: int = 0, offset: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Yield the rows from ``start``; their offset is their index."""
        del offset  # a row's index says where it is
        for index in range(start, len(self._values) if stop is None else min(stop, len(self._values))):
            yield row_of(self._values[index], index, f"{self.uri}, row {index}", self._limit)


def row_of(values: Json, index: int, where: str, limit: int) -> Row:
    """Return the row of a mapping whose offset is its index; its raw content is its canonical JSON."""
    raw = b""
    try:
        raw = _encoded(values)
        if len(raw) > limit:
            raise RowProblem(f"is larger than {limit:,} bytes; cut the text or split the row")
        refuse_half_characters(values)
    except RowProblem as problem:
        return bad_row(index, where, problem, raw)
    return Row(index=index, offset=index, raw=raw, read=partial(to_item, values, index, where))


def bad_row(index: int, where: str, problem: RowProblem, raw: bytes) -> Row:
    """Return the row of what is no item, whose offset is its index."""
    return Row(index=index, offset=index, raw=raw, read=partial(bad_item, index, where, problem))


def _encoded(values: Json) -> bytes:
    try:
        return canonical_json(values).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise RowProblem(f"cannot be written as JSON: {error}") from error
