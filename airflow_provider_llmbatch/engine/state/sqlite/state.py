"""All state roles on one SQLite file; the transaction is the atomic step."""

from __future__ import annotations

import asyncio
import json
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_llmbatch.engine.state import arithmetic
from airflow_provider_llmbatch.engine.state.health import ASK_AGAIN_S
from airflow_provider_llmbatch.engine.state.protocols import (
    Grant,
    Level,
    Need,
    Scope,
    Seen,
    Settlement,
    Standing,
    Taken,
    Told,
)
from airflow_provider_llmbatch.engine.state.sqlite.gauges import Gauges
from airflow_provider_llmbatch.engine.state.sqlite.health import Gates, SqliteHealth
from airflow_provider_llmbatch.engine.state.sqlite.prepare import prepared
from airflow_provider_llmbatch.engine.state.sqlite.turns import Turns, held_back
from airflow_provider_llmbatch.errors import ConfigurationError, StaleFenceError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

#: Seconds to wait for another process's transaction before giving up.
BUSY_S = 20.0
#: Seconds before somebody who waits for open calls to end asks again.
OPEN_S = 0.05


class SqliteState(SqliteHealth):
    """
    State for all processes of one host.

    Every call runs on one thread of its own, so the event loop never waits for the disk.

    :param path: the file, or ``":memory:"`` for a state that nobody shares.
    :param host: name of this host; a file that another host made is refused. ``""`` takes any file.
    :param now: the state's clock, Unix seconds.
    :param new_id: makes the id of a grant.
    :raises ConfigurationError: when the file belongs to another host.
    :raises StoreError: when the file cannot be opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        host: str = "",
        now: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._path = os.fspath(path)
        self._now = now
        self._new_id = new_id
        self._closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="llmbatch-state")
        self._connection: sqlite3.Connection = self._thread.submit(self._open, host).result()

    async def take(
        self,
        scope: Scope,
        needs: Sequence[Need],
        settled: Sequence[Settlement] = (),
        told: Sequence[Told] = (),
        seen: Sequence[Seen] = (),
    ) -> Taken:
        """See :meth:`.protocols.Limits.take`."""
        return await self._run(self._take, scope, needs, settled, told, seen)

    async def throttle(self, scope: Scope, seconds: float) -> None:
        """See :meth:`.protocols.Limits.throttle`."""
        await self._run(self._throttle, scope, seconds)

    async def rebuild(self, scope: Scope, used: Mapping[str, int]) -> None:
        """See :meth:`.protocols.Limits.rebuild`."""
        await self._run(self._rebuild, scope, used)

    async def levels(self, scope: Scope) -> Sequence[Level]:
        """See :meth:`.protocols.Limits.levels`."""
        return await self._run(self._levels, scope)

    async def next(self, owner: str, at_least: int = 1) -> int:
        """See :meth:`.protocols.Fences.next`."""
        return await self._run(self._next, owner, at_least)

    async def report(self, standing: Standing) -> None:
        """See :meth:`.protocols.Progress.report`."""
        await self._run(self._report, standing)

    async def standing(self, owner: str) -> Standing | None:
        """See :meth:`.protocols.Progress.standing`."""
        return await self._run(self._standing, owner)

    async def close(self) -> None:
        """Close the file; once more does nothing."""
        if not self._closed:
            self._closed = True
            await self._run(self._connection.close)
            self._thread.shutdown(wait=True)

    async def step(self, change: Callable[[sqlite3.Connection, float], T]) -> T:
        """Run ``change(connection, now)`` in a transaction of its own."""

        def transact() -> T:
            with self._transaction() as connection:
                return change(connection, self._now())

        return await self._run(transact)

    async def _run(self, step: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, step, *arguments)

    def _open(self, host: str) -> sqlite3.Connection:
        with ExitStack() as opened:
            connection = self._prepared(host, opened)
            opened.pop_all()
        return connection

    def _prepared(self, host: str, opened: ExitStack) -> sqlite3.Connection:
        try:
            if self._path != ":memory:":
                Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
            opened.callback(connection.close)
            owner = prepared(connection, host, BUSY_S)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                f"Cannot open the state file {self._path}: {error}. "
                "Make its folder writable or set [llmbatch] state_url."
            ) from error
        if host and owner not in ("", host):
            raise ConfigurationError(
                f"The state file {self._path} was made on host {owner!r}, this is {host!r}. SQLite state "
                "serves one host: set [llmbatch] state_url to a shared store, or single_host if both names "
                "are the same machine."
            )
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreError(f"The state file {self._path} failed: {error}.") from error

    def _take(
        self,
        scope: Scope,
        needs: Sequence[Need],
        settled: Sequence[Settlement],
        told: Sequence[Told],
        seen: Sequence[Seen],
    ) -> Taken:
        with self._transaction() as connection:
            # Asked inside: waiting for other processes' transactions must not date a grant back.
            now = self._now()
            until, factor = self._throttled(connection, scope, now)
            gauges = Gauges(connection, scope.meters, now, factor, scope.about(told))
            for settlement in settled:
                gauges.settle(settlement)
            gauges.correct()
            over = [(s.grant.id,) for s in settled if not s.late]
            connection.executemany("DELETE FROM leases WHERE id = ?", over)
            connection.executemany("DELETE FROM holds WHERE lease = ?", over)
            fence = _fence(connection, scope.owner)
            connection.execute("REPLACE INTO alive VALUES (?, ?)", (scope.owner, now + scope.life_s))
            turns = Turns(connection, scope, now)
            gates = Gates(connection, scope.gates, seen, now)
            taken = None
            if fence > scope.fence:
                turns.leave()
            else:
                taken = held_back(turns, gates, until - now, needs) or self._granted(
                    connection, scope, gauges, gates, turns, needs, now
                )
            gauges.save()
        if taken is None:
            raise StaleFenceError(
                f"Try {scope.fence} of {scope.owner} has been replaced by try {fence}; it sends nothing more."
            )
        return taken

    def _granted(
        self,
        connection: sqlite3.Connection,
        scope: Scope,
        gauges: Gauges,
        gates: Gates,
        turns: Turns,
        needs: Sequence[Need],
        now: float,
    ) -> Taken:
        asked = needs[:1] if gates.are_tried else needs
        taken = self._grant(connection, scope, gauges, asked, now)
        if taken.grants:
            turns.count(gauges.seconds([grant.need for grant in taken.grants]))
        taken = turns.after(taken, len(asked))
        if taken.grants:
            gates.begin_trial()
        if len(taken.grants) == len(asked) < len(needs):
            return replace(taken, wait_s=ASK_AGAIN_S, waits_for="gate")
        return taken

    def _grant(
        self,
        connection: sqlite3.Connection,
        scope: Scope,
        gauges: Gauges,
        needs: Sequence[Need],
        now: float,
    ) -> Taken:
        (in_flight,) = connection.execute(
            "SELECT count(*) FROM leases JOIN alive USING (owner)"
            " WHERE throttle = ? AND expires > ? AND until > ?",
            (scope.throttle, now, now),
        ).fetchone()
        grants: list[Grant] = []
        wait_s, waits_for, refused = 0.0, "", False
        for need in needs:
            if in_flight + len(grants) >= scope.max_in_flight:
                wait_s, waits_for = OPEN_S, "in_flight"
                break
            wait_s, meter = gauges.wait(need)
            if meter is not None:
                waits_for, refused = meter.key, math.isinf(wait_s)
                if refused and gauges.may_come_free(meter, need):
                    wait_s, refused = OPEN_S, False
                break
            grant = Grant(id=self._new_id(), need=need, at=now)
            connection.execute(
                "INSERT INTO leases VALUES (?, ?, ?, ?)",
                (grant.id, scope.throttle, scope.owner, now + scope.lease_s),
            )
            gauges.take(need, grant.id)
            grants.append(grant)
        return Taken(grants=tuple(grants), wait_s=wait_s, waits_for=waits_for, refused=refused)

    @staticmethod
    def _throttled(connection: sqlite3.Connection, scope: Scope, now: float) -> tuple[float, float]:
        row = connection.execute(
            "SELECT until, low, ceiling, at FROM refusals WHERE throttle = ?", (scope.throttle,)
        ).fetchone()
        if row is None:
            return 0.0, 1.0
        until, low, ceiling, at = row
        return until, arithmetic.recovered(low, ceiling, now - at, scope.window_s)

    def _throttle(self, scope: Scope, seconds: float) -> None:
        now = self._now()
        with self._transaction() as connection:
            until, factor = self._throttled(connection, scope, now)
            row = connection.execute(
                "SELECT low, ceiling, at FROM refusals WHERE throttle = ?", (scope.throttle,)
            ).fetchone()
            if row is None or arithmetic.is_another_no(until, row[2], scope.meters, now):
                share = Gauges(connection, scope.meters, now, factor).fullest()
                row = *arithmetic.lowered(factor, share), now
            connection.execute(
                "REPLACE INTO refusals VALUES (?, ?, ?, ?, ?)",
                (scope.throttle, max(until, now + seconds), *row),
            )

    def _rebuild(self, scope: Scope, used: Mapping[str, int]) -> None:
        now = self._now()
        with self._transaction() as connection:
            connection.executemany(
                "INSERT INTO totals VALUES (?, ?)"
                " ON CONFLICT (meter) DO UPDATE SET used = max(used, excluded.used)",
                [(m.key_at(now), used[m.key]) for m in scope.meters if m.window_s is None and m.key in used],
            )

    def _levels(self, scope: Scope) -> list[Level]:
        now = self._now()
        with self._transaction() as connection:
            _, factor = self._throttled(connection, scope, now)
            used = Gauges(connection, scope.meters, now, factor).used()
        return [Level(key=m.key, used=n, capacity=m.capacity, factor=factor) for m, n in used.items()]

    def _next(self, owner: str, at_least: int) -> int:
        with self._transaction() as connection:
            fence = max(_fence(connection, owner) + 1, at_least)
            connection.execute("REPLACE INTO fences VALUES (?, ?)", (owner, fence))
            connection.execute("DELETE FROM leases WHERE owner = ? OR expires < ?", (owner, self._now()))
            connection.execute("DELETE FROM holds WHERE lease NOT IN (SELECT id FROM leases)")
            connection.execute("DELETE FROM alive WHERE owner NOT IN (SELECT owner FROM leases)")
        return fence

    def _report(self, standing: Standing) -> None:
        with self._transaction() as connection:
            connection.execute(
                "REPLACE INTO standings VALUES (?, ?, ?, ?, ?, ?)",
                (
                    standing.owner,
                    standing.result_path,
                    standing.done,
                    standing.items,
                    json.dumps(dict(standing.figures), allow_nan=False),
                    self._now(),
                ),
            )

    def _standing(self, owner: str) -> Standing | None:
        row = self._connection.execute("SELECT * FROM standings WHERE owner = ?", (owner,)).fetchone()
        if row is None:
            return None
        owner, result_path, done, items, figures, at = row
        return Standing(
            owner=owner, result_path=result_path, done=done, items=items, figures=json.loads(figures), at=at
        )


def _fence(connection: sqlite3.Connection, owner: str) -> int:
    row = connection.execute("SELECT fence FROM fences WHERE owner = ?", (owner,)).fetchone()
    return row[0] if row else 0
