"""Claims in the SQLite file of one host."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from airflow_provider_llmbatch.engine.state.claims import HELD_S, KEPT_S, Claimed, Pointer
from airflow_provider_llmbatch.engine.state.sqlite.state import SqliteState


class SqliteClaims:
    """
    Claims in the file of a :class:`.state.SqliteState`.

    :param state: opens the file and knows the time.
    """

    def __init__(self, state: SqliteState) -> None:
        self._state = state

    async def claim(self, question: str, holder: str, *, fence: int, held_s: float = HELD_S) -> Claimed:
        """See :meth:`..claims.Claims.claim`."""

        def step(connection: sqlite3.Connection, now: float) -> Claimed:
            row = connection.execute(
                "SELECT holder, fence, ends, path, chunk, item FROM claims WHERE question = ?", (question,)
            ).fetchone()
            if row is not None and row[2] > now:
                if row[3] is not None:
                    return Claimed(answer=Pointer(path=row[3], chunk=row[4], index=row[5]))
                if row[0] != holder or row[1] > fence:
                    return Claimed(held_s=row[2] - now)
            connection.execute(
                "REPLACE INTO claims (question, holder, fence, ends) VALUES (?, ?, ?, ?)",
                (question, holder, fence, now + held_s),
            )
            return Claimed(won=True)

        return await self._state.step(step)

    async def look(self, question: str) -> Pointer | None:
        """See :meth:`..claims.Claims.look`."""

        def step(connection: sqlite3.Connection, now: float) -> Pointer | None:
            row = connection.execute(
                "SELECT path, chunk, item FROM claims WHERE question = ? AND ends > ? AND path IS NOT NULL",
                (question, now),
            ).fetchone()
            return None if row is None else Pointer(path=row[0], chunk=row[1], index=row[2])

        return await self._state.step(step)

    async def renew(self, questions: Sequence[str], holder: str, *, held_s: float = HELD_S) -> None:
        """See :meth:`..claims.Claims.renew`."""

        def step(connection: sqlite3.Connection, now: float) -> None:
            connection.executemany(
                "UPDATE claims SET ends = ? WHERE question = ? AND holder = ? AND path IS NULL",
                [(now + held_s, question, holder) for question in questions],
            )

        await self._state.step(step)

    async def answer(self, question: str, holder: str, pointer: Pointer, *, kept_s: float = KEPT_S) -> None:
        """See :meth:`..claims.Claims.answer`."""

        def step(connection: sqlite3.Connection, now: float) -> None:
            connection.execute(
                "UPDATE claims SET ends = ?, path = ?, chunk = ?, item = ?"
                " WHERE question = ? AND holder = ? AND path IS NULL",
                (now + kept_s, pointer.path, pointer.chunk, pointer.index, question, holder),
            )

        await self._state.step(step)

    async def release(self, questions: Sequence[str], holder: str) -> None:
        """See :meth:`..claims.Claims.release`."""

        def step(connection: sqlite3.Connection, now: float) -> None:
            connection.executemany(
                "DELETE FROM claims WHERE question = ? AND holder = ? AND path IS NULL",
                [(question, holder) for question in questions],
            )

        await self._state.step(step)

    async def forget(self, question: str, pointer: Pointer) -> None:
        """See :meth:`..claims.Claims.forget`."""

        def step(connection: sqlite3.Connection, now: float) -> None:
            connection.execute(
                "DELETE FROM claims WHERE question = ? AND path = ? AND chunk = ? AND item = ?",
                (question, pointer.path, pointer.chunk, pointer.index),
            )

        await self._state.step(step)

    async def forget_folder(self, path: str) -> None:
        """See :meth:`..claims.Claims.forget_folder`."""

        def step(connection: sqlite3.Connection, now: float) -> None:
            connection.execute("DELETE FROM claims WHERE path = ?", (path,))

        await self._state.step(step)
