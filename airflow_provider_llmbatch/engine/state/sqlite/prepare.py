"""Make a file ready for use, also while other processes do the same."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from importlib.resources import files

#: Seconds between two tries.
TRY_AGAIN_S = 0.02


def prepared(
    connection: sqlite3.Connection,
    host: str,
    busy_s: float,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """
    Create what is not there yet, and return the host that the file belongs to.

    While one process changes the mode of its journal, SQLite turns others away at once and lets none of them
    wait, whatever the connection's time-out: so they try again here.

    :param host: whose file it becomes when it is new.
    :param busy_s: seconds after which it is given up.
    :param now: the process's clock, and ``sleep`` waits by it.
    :raises sqlite3.Error: when the file cannot be used.
    """
    until = now() + busy_s
    while True:
        try:
            return _prepared(connection, host)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or now() > until:
                raise
            sleep(TRY_AGAIN_S)


def _prepared(connection: sqlite3.Connection, host: str) -> str:
    # What a power cut loses here is a second of accounting, and costs a pause, not money.
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    connection.executescript(files(__package__).joinpath("schema.sql").read_text("utf-8"))
    connection.execute("INSERT OR IGNORE INTO host VALUES (1, ?)", (host,))
    (owner,) = connection.execute("SELECT name FROM host").fetchone()
    return str(owner)
