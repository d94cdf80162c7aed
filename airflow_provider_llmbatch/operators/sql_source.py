"""A query becomes a source file, streamed through Airflow's database hook, once for all chunks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.providers.common.sql.hooks.sql import DbApiHook

#: Rows that are fetched at a time; whether the driver reads further ahead is its own choice.
FETCH_ROWS = 1000

_ORDERED = re.compile(r"\border\s+by\b", re.IGNORECASE)


def database_hook(conn_id: str) -> DbApiHook:
    """
    Return the hook of a database connection.

    :raises ConfigurationError: when the connection is no database.
    """
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import BaseHook

    hook = BaseHook.get_hook(conn_id)
    if not isinstance(hook, DbApiHook):
        raise ConfigurationError(
            f"Connection {conn_id!r} is served by {type(hook).__name__}, which is no database hook; name a "
            "connection of a database, such as sqlite or postgres."
        )
    return hook


def query_lines(sql: str, conn_id: str, key: str) -> Iterator[bytes]:
    """
    Yield the rows of a query as lines of a source file.

    :param sql: a SELECT with an ORDER BY, so that the next try sees the rows in the same order.
    :param conn_id: connection of the database.
    :param key: column that becomes the items' id.
    :raises ConfigurationError: for a query without order, or a connection that is no database.
    :raises InputError: for columns that cannot be used.
    """
    from airflow_provider_llmbatch.engine.source import RowsSource

    if not _ORDERED.search(sql):
        raise ConfigurationError(
            f"sql has no ORDER BY; add one, such as ORDER BY {key}, so that another try reads the rows in "
            "the same order and finds what is paid already."
        )
    with closing(database_hook(conn_id).get_conn()) as connection, closing(connection.cursor()) as cursor:

        def read() -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
            cursor.execute(sql)
            if cursor.description is None:
                raise ConfigurationError("sql returns no rows; give a SELECT.")
            header = [column[0] for column in cursor.description]
            return header, _fetched(cursor, header)

        yield from RowsSource(f"sql of {conn_id}", read, key=key).lines()


def _fetched(cursor: Any, header: Sequence[str]) -> Iterator[Sequence[Any]]:
    while rows := cursor.fetchmany(FETCH_ROWS):
        for row in rows:
            # Some hooks can be told to make mappings of rows.
            yield [row[name] for name in header] if isinstance(row, Mapping) else row
