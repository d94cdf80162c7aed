"""Who waits for the same limits stands in line: the head takes first, so that a large need is not starved."""

from __future__ import annotations

import sqlite3

from airflow_provider_llmbatch.engine.state.protocols import Scope

#: Seconds after which a place in the line is lost, unless its holder asks again.
KEPT_S = 2.0
#: Shortest and longest wait before somebody behind the head asks again, in seconds.
SHORTEST_S, LONGEST_S = 0.01, 0.25
#: Seconds that a turn takes, to guess how long those behind it have to wait.
TURN_S = 0.02


class Turns:
    """
    The line that a scope waits in, at one moment.

    :param connection: inside a transaction that writes.
    :param scope: who takes.
    :param now: state time of the transaction.
    """

    def __init__(self, connection: sqlite3.Connection, scope: Scope, now: float) -> None:
        self._connection = connection
        self._scope = scope
        self._now = now
        connection.execute(
            "DELETE FROM turns WHERE queue = ? AND kept_until < ? AND waiter <> ?",
            (scope.queue_key, now, scope.waiter_key),
        )
        line = connection.execute(
            "SELECT waiter FROM turns WHERE queue = ? ORDER BY priority, ticket", (scope.queue_key,)
        )
        self._line: list[str] = [waiter for (waiter,) in line]

    @property
    def is_mine(self) -> bool:
        """Whether nobody is to take first."""
        return not self._line or self._line[0] == self._scope.waiter_key

    @property
    def others_wait(self) -> bool:
        """Whether anybody else is in the line."""
        return any(waiter != self._scope.waiter_key for waiter in self._line)

    def keep(self) -> float:
        """Stand in line, where one stood or at its end; return the seconds until it makes sense to ask."""
        if self._scope.waiter_key in self._line:
            self._connection.execute(
                "UPDATE turns SET kept_until = ? WHERE queue = ? AND waiter = ?",
                (self._now + KEPT_S, self._scope.queue_key, self._scope.waiter_key),
            )
            return self._guess(self._line.index(self._scope.waiter_key))
        self.start_over()
        return self._guess(len(self._line))

    def start_over(self) -> None:
        """Stand at the end of the line."""
        queue, waiter = self._scope.queue_key, self._scope.waiter_key
        (last,) = self._connection.execute(
            "SELECT coalesce(max(ticket), 0) FROM turns WHERE queue = ?", (queue,)
        ).fetchone()
        self._connection.execute(
            "REPLACE INTO turns VALUES (?, ?, ?, ?, ?)",
            (queue, waiter, self._scope.priority, last + 1, self._now + KEPT_S),
        )

    def leave(self) -> None:
        """Leave the line."""
        if self._scope.waiter_key in self._line:
            self._connection.execute(
                "DELETE FROM turns WHERE queue = ? AND waiter = ?",
                (self._scope.queue_key, self._scope.waiter_key),
            )

    def _guess(self, ahead: int) -> float:
        return min(LONGEST_S, max(SHORTEST_S, TURN_S * ahead))
