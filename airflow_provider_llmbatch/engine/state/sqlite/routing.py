"""Conditions and pins, in the SQLite file of one host."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_llmbatch.engine.state.health import KEPT_S, Record
from airflow_provider_llmbatch.engine.state.routing import Condition, Pin
from airflow_provider_llmbatch.engine.state.sqlite.health import read_record
from airflow_provider_llmbatch.engine.state.sqlite.state import SqliteState


class SqliteRouting:
    """
    What people know and do about routes, in the file of a :class:`.state.SqliteState`.

    :param state: opens the file and knows the time.
    """

    def __init__(self, state: SqliteState) -> None:
        self._state = state

    async def conditions(self) -> Sequence[Condition]:
        """See :meth:`..routing.Routing.conditions`."""

        def look(connection: sqlite3.Connection, now: float) -> list[Condition]:
            rows = connection.execute("SELECT name, record FROM gates").fetchall()
            records = {name: read_record(record) for name, record in rows}
            # Where keys expire, each hour brings another name.
            stale = [(name,) for name, record in records.items() if record.is_stale(now)]
            connection.executemany("DELETE FROM gates WHERE name = ?", stale)
            connection.execute("DELETE FROM offered WHERE at < ?", (now - KEPT_S,))
            offered = {gate for (gate,) in connection.execute("SELECT gate FROM offered")}
            known = {name: record for name, record in records.items() if not record.is_stale(now)}
            return [
                replace(known.get(name, Record()).condition(name), offered=name in offered)
                for name in sorted(offered.union(known))
            ]

        return await self._state.step(look)

    async def forget(self, gate: str) -> None:
        """See :meth:`..routing.Routing.forget`."""

        def change(connection: sqlite3.Connection, now: float) -> None:
            connection.execute("DELETE FROM gates WHERE name = ?", (gate,))
            connection.execute("DELETE FROM latencies WHERE endpoint = ?", (gate,))

        await self._state.step(change)

    async def pin(self, gate: str, *, by: str) -> None:
        """See :meth:`..routing.Routing.pin`."""

        def change(connection: sqlite3.Connection, now: float) -> None:
            connection.execute("REPLACE INTO pins VALUES (?, ?, ?)", (gate, by, now))

        await self._state.step(change)

    async def unpin(self, gate: str) -> None:
        """See :meth:`..routing.Routing.unpin`."""

        def change(connection: sqlite3.Connection, now: float) -> None:
            connection.execute("DELETE FROM pins WHERE gate = ?", (gate,))

        await self._state.step(change)

    async def offer(self, gates: Sequence[str]) -> None:
        """See :meth:`..routing.Pins.offer`."""

        def change(connection: sqlite3.Connection, now: float) -> None:
            connection.executemany("REPLACE INTO offered VALUES (?, ?)", [(gate, now) for gate in gates])

        await self._state.step(change)

    async def pins(self) -> Sequence[Pin]:
        """See :meth:`..routing.Pins.pins`."""

        def look(connection: sqlite3.Connection, now: float) -> list[Pin]:
            rows = connection.execute("SELECT gate, by, at FROM pins ORDER BY at DESC, gate")
            return [Pin(gate=gate, by=by, at=at) for gate, by, at in rows]

        return await self._state.step(look)
