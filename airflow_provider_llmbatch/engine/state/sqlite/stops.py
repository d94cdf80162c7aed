"""Notes that runs shall stop, in the SQLite file of one host."""

from __future__ import annotations

import sqlite3

from airflow_provider_llmbatch.engine.state.sqlite.state import SqliteState
from airflow_provider_llmbatch.engine.state.stops import KEPT_S, Stop


class SqliteStops:
    """
    Notes in the file of a :class:`.state.SqliteState`.

    :param state: opens the file and knows the time.
    """

    def __init__(self, state: SqliteState) -> None:
        self._state = state

    async def ask(self, run: str, *, by: str, why: str) -> None:
        """See :meth:`..stops.Stops.ask`."""

        def step(connection: sqlite3.Connection, now: float) -> None:
            old = connection.execute("SELECT run FROM stops WHERE at < ?", (now - KEPT_S,)).fetchall()
            for (forgotten,) in [*old, (run,)]:
                _lift(connection, forgotten)
            connection.execute("INSERT INTO stops VALUES (?, ?, ?, ?)", (run, by, why, now))

        await self._state.step(step)

    async def asked(self, run: str) -> Stop | None:
        """See :meth:`..stops.Stops.asked`."""
        return await self._state.step(lambda connection, now: _stop(connection, run, now))

    async def lift(self, run: str) -> None:
        """See :meth:`..stops.Stops.lift`."""
        await self._state.step(lambda connection, now: _lift(connection, run))

    async def heed(self, run: str, owner: str, occasion: str) -> Stop | None:
        """See :meth:`..stops.Stops.heed`."""

        def step(connection: sqlite3.Connection, now: float) -> Stop | None:
            stop = _stop(connection, run, now)
            if stop is None:
                return None
            known = connection.execute(
                "SELECT occasion FROM heeded WHERE run = ? AND owner = ?", (run, owner)
            ).fetchone()
            if known is not None and known[0] != occasion:
                _lift(connection, run)
                return None
            connection.execute("REPLACE INTO heeded VALUES (?, ?, ?)", (run, owner, occasion))
            return stop

        return await self._state.step(step)


def _stop(connection: sqlite3.Connection, run: str, now: float) -> Stop | None:
    row = connection.execute(
        "SELECT by, why, at FROM stops WHERE run = ? AND at >= ?", (run, now - KEPT_S)
    ).fetchone()
    return None if row is None else Stop(by=row[0], why=row[1], at=row[2])


def _lift(connection: sqlite3.Connection, run: str) -> None:
    connection.execute("DELETE FROM stops WHERE run = ?", (run,))
    connection.execute("DELETE FROM heeded WHERE run = ?", (run,))
