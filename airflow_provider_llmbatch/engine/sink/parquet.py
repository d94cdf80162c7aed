"""Parquet, a group of rows at a time; needs the ``parquet`` extra."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from airflow_provider_llmbatch.engine.items import Result
from airflow_provider_llmbatch.engine.sink.columns import Column, Value
from airflow_provider_llmbatch.errors import ConfigurationError

#: Rows of a group, and so in memory at once.
GROUP_ROWS = 5_000
#: Digits of an amount of money, all and behind the point.
_DIGITS, _PLACES = 38, 18


def to_parquet(results: Iterable[Result], columns: Sequence[Column]) -> Iterator[bytes]:
    """
    Yield a Parquet file of the results, piece by piece.

    :raises ConfigurationError: when pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigurationError(
            "Parquet needs pyarrow: install airflow-provider-llmbatch[parquet], or take another format."
        ) from error
    types = {
        "text": pyarrow.string(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "decimal": pyarrow.decimal128(_DIGITS, _PLACES),
    }
    schema = pyarrow.schema([(column.name, types[column.kind]) for column in columns])
    pieces = _Pieces()
    rest = iter(results)
    with parquet.ParquetWriter(pyarrow.PythonFile(pieces, mode="w"), schema) as writer:
        while group := list(itertools.islice(rest, GROUP_ROWS)):
            cells = [[_exact(column.read(result)) for result in group] for column in columns]
            arrays = [pyarrow.array(cell, field.type) for cell, field in zip(cells, schema, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            yield pieces.taken()
    yield pieces.taken()


class _Pieces:
    """What a writer has written, until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: Any) -> int:
        self._written.append(bytes(data))
        return len(self._written[-1])

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Whoever takes the last piece is done with it."""

    def taken(self) -> bytes:
        """Return what has been written since the last time."""
        written, self._written = self._written, []
        return b"".join(written)


def _exact(value: Value) -> Value:
    """Return money with the places that its column has."""
    if isinstance(value, Decimal):
        return value.quantize(Decimal(1).scaleb(-_PLACES), ROUND_HALF_EVEN)
    return value
