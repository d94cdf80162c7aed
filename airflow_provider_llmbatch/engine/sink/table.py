"""
Results into a table of a database, by id: what was there under an id is replaced.

Plain SQL over DB-API 2.0: deleted and inserted in one transaction, so that doing it again changes nothing
and a failure leaves the table as it was.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from decimal import Decimal
from typing import Any

from airflow_provider_llmbatch.engine.items import Result
from airflow_provider_llmbatch.engine.sink.columns import Column
from airflow_provider_llmbatch.errors import ConfigurationError, StoreError

#: Rows that are handed over at once.
BATCH_ROWS = 500
KEY = "id"

_NAME = re.compile(r"[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*){0,2}", re.ASCII)


def upsert(
    connection: Any,
    table: str,
    results: Iterable[Result],
    columns: Sequence[Column],
    *,
    placeholder: str,
    quote: Callable[[str], str],
) -> int:
    """
    Write results into a table, and commit; which of the columns are written is the table's choice.

    :param connection: of DB-API 2.0, not committing by itself.
    :param table: name of the table, with its schema if need be.
    :param columns: what results have; those that the table has as well are written.
    :param placeholder: of the driver, such as ``?`` or ``%s``.
    :param quote: makes the name of a column safe to use.
    :return: how many rows were written.
    :raises ConfigurationError: for a name that is none, or a table without a column ``id``.
    :raises StoreError: when the table cannot be read.
    """
    if not _NAME.fullmatch(table):
        raise ConfigurationError(
            f"table is {table!r}; give a plain name, or schema.name, of letters, digits and underscores."
        )
    count, rest = 0, iter(results)
    with closing(connection.cursor()) as cursor:
        known = _known(cursor, table, columns)
        names = ", ".join(quote(name) for name in known)
        places = ", ".join([placeholder] * len(known))
        (key,) = (name for name in known if name.lower() == KEY)
        delete = f"DELETE FROM {table} WHERE {quote(key)} = {placeholder}"
        insert = f"INSERT INTO {table} ({names}) VALUES ({places})"
        while batch := list(itertools.islice(rest, BATCH_ROWS)):
            # Of two rows with one id the later one stays, as it would from one batch to the next.
            rows = {known[key].read(result): result for result in batch}
            cursor.executemany(delete, [(id,) for id in rows])
            cursor.executemany(insert, [_cells(known.values(), result) for result in rows.values()])
            count += len(rows)
    connection.commit()
    return count


def _known(cursor: Any, table: str, columns: Sequence[Column]) -> dict[str, Column]:
    """Return the columns that the table has as well, by their names there."""
    try:
        cursor.execute(f"SELECT * FROM {table} WHERE 1 = 0")
    # drivers raise errors of their own making
    except Exception as error:
        raise StoreError(
            f"Table {table} cannot be read: {type(error).__name__}: {error}. If it is not there, create it, "
            f"such as CREATE TABLE {table} (id VARCHAR(512) PRIMARY KEY, outcome VARCHAR(32), output TEXT)."
        ) from error
    ours = {column.sql_name.lower(): column for column in columns}
    theirs = [described[0] for described in cursor.description]
    known = {name: ours[name.lower()] for name in theirs if name.lower() in ours}
    if KEY not in map(str.lower, known):
        raise ConfigurationError(
            f"Table {table} has the columns {', '.join(theirs)}; it needs one named {KEY}, to know an "
            "item again."
        )
    return known


def _cells(columns: Iterable[Column], result: Result) -> tuple[Any, ...]:
    values = (column.read(result) for column in columns)
    # Not every driver takes decimals; all take their text.
    return tuple(format(value, "f") if isinstance(value, Decimal) else value for value in values)
