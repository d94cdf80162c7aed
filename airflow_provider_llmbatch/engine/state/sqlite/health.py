"""Gates and latencies on SQLite."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from airflow_provider_llmbatch.engine.state.health import Record
from airflow_provider_llmbatch.engine.state.protocols import Closed, Gate, Seen

T = TypeVar("T")

#: Latencies are kept in so many slots of a span.
SLOTS_PER_SPAN = 4


class SqliteHealth:
    """The roles ``Health`` and ``Latencies``; :class:`.state.SqliteState` brings the transactions."""

    async def step(self, change: Callable[[sqlite3.Connection, float], T]) -> T:
        """Run ``change(connection, now)`` in a transaction of its own."""
        raise NotImplementedError

    async def park(self, gate: Gate, reason: str) -> Closed:
        """See :meth:`..protocols.Health.park`."""

        def change(connection: sqlite3.Connection, now: float) -> Closed:
            record = _load(connection, gate.name)
            closed = record.park(gate, reason, now)
            _save(connection, gate.name, record)
            return closed

        return await self.step(change)

    async def unpark(self, gate: str) -> None:
        """See :meth:`..protocols.Health.unpark`."""

        def change(connection: sqlite3.Connection, now: float) -> None:
            record = _load(connection, gate)
            record.open()
            _save(connection, gate, record)

        await self.step(change)

    async def parked(self) -> Sequence[Closed]:
        """See :meth:`..protocols.Health.parked`."""

        def look(connection: sqlite3.Connection, now: float) -> list[Closed]:
            rows = connection.execute("SELECT name, record FROM gates ORDER BY name").fetchall()
            found = (read_record(record).closed(name) for name, record in rows)
            return [one for one in found if one is not None]

        return await self.step(look)

    async def add_latencies(self, counts: Mapping[str, Mapping[int, int]], span_s: float) -> None:
        """See :meth:`..protocols.Latencies.add_latencies`."""
        rows = [(endpoint, b, n) for endpoint, buckets in counts.items() for b, n in buckets.items()]

        def change(connection: sqlite3.Connection, now: float) -> None:
            slot = int(now * SLOTS_PER_SPAN // span_s)
            connection.execute("DELETE FROM latencies WHERE ends < ?", (now,))
            connection.executemany(
                "INSERT INTO latencies VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (endpoint, slot, bucket) DO UPDATE SET calls = calls + excluded.calls",
                [(endpoint, slot, bucket, n, now + 2 * span_s) for endpoint, bucket, n in rows],
            )

        await self.step(change)

    async def latencies(self, endpoints: Sequence[str], span_s: float) -> Mapping[str, Mapping[int, int]]:
        """See :meth:`..protocols.Latencies.latencies`."""

        def look(connection: sqlite3.Connection, now: float) -> dict[str, Counter[int]]:
            first = int(now * SLOTS_PER_SPAN // span_s) - SLOTS_PER_SPAN
            found: dict[str, Counter[int]] = {endpoint: Counter() for endpoint in endpoints}
            for endpoint in endpoints:
                rows = connection.execute(
                    "SELECT bucket, calls FROM latencies WHERE endpoint = ? AND slot >= ?", (endpoint, first)
                )
                for bucket, calls in rows:
                    found[endpoint][bucket] += calls
            return found

        return await self.step(look)


class Gates:
    """
    The gates of a scope in one transaction.

    :param connection: inside a transaction that writes.
    :param gates: what a call goes through.
    :param seen: what calls have met there since the last take.
    :param now: state time of the transaction.
    """

    def __init__(
        self, connection: sqlite3.Connection, gates: Sequence[Gate], seen: Sequence[Seen], now: float
    ) -> None:
        self._connection = connection
        self._now = now
        self._records = {gate: _load(connection, gate.name) for gate in gates}
        met = {one.gate: one for one in seen}
        for gate, record in self._records.items():
            if gate.name in met:
                record.hear(gate, met[gate.name], now)
                _save(connection, gate.name, record)

    def wait(self) -> tuple[float, Closed | None]:
        """Return the seconds until a call may pass all of them, and the first that is parked, if any is."""
        for gate, record in self._records.items():
            if wait_s := record.wait_s(gate, self._now):
                return wait_s, record.closed(gate.name)
        return 0.0, None

    @property
    def are_tried(self) -> bool:
        """Whether the next call goes alone."""
        return any(record.is_trial(gate, self._now) for gate, record in self._records.items())

    def begin_trial(self) -> None:
        """Let one call have them alone, where that is due."""
        for gate, record in self._records.items():
            if record.is_trial(gate, self._now):
                record.begin_trial(gate, self._now)
                _save(self._connection, gate.name, record)


def _load(connection: sqlite3.Connection, name: str) -> Record:
    row = connection.execute("SELECT record FROM gates WHERE name = ?", (name,)).fetchone()
    return Record() if row is None else read_record(row[0])


def read_record(text: str) -> Record:
    """Return the health of a gate that was saved."""
    saved = json.loads(text)
    return Record(**{**saved, "failed": tuple(saved["failed"])})


def _save(connection: sqlite3.Connection, name: str, record: Record) -> None:
    connection.execute("REPLACE INTO gates VALUES (?, ?)", (name, json.dumps(dataclasses.asdict(record))))
