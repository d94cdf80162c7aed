"""Who waits for the same limits stands in line: the head takes first, so that a large need is not starved."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_llmbatch.engine.state import arithmetic
from airflow_provider_llmbatch.engine.state.protocols import Need, Scope, Taken
from airflow_provider_llmbatch.engine.state.sqlite.health import Gates

#: Seconds after which a place in the line is lost, unless its holder asks again.
KEPT_S = 2.0
#: Shortest and longest wait before somebody behind the head asks again, in seconds.
SHORTEST_S, LONGEST_S = 0.01, 0.25
#: Seconds that a turn takes, to guess how long those behind it have to wait.
TURN_S = 0.02
#: Seconds after which it is forgotten what somebody had who asks no more.
FORGOTTEN_S = 600.0


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
            "SELECT waiter, ticket FROM turns WHERE queue = ? ORDER BY priority, ticket", (scope.queue_key,)
        )
        #: places by waiter, the head first
        self._line: dict[str, float] = dict(line.fetchall())

    @property
    def is_mine(self) -> bool:
        """Whether nobody is to take first."""
        return next(iter(self._line), self._scope.waiter_key) == self._scope.waiter_key

    @property
    def others_wait(self) -> bool:
        """Whether anybody else is in the line."""
        return self._others > 0

    @property
    def _others(self) -> int:
        return len(self._line.keys() - {self._scope.waiter_key})

    def keep(self) -> float:
        """Stand in line; return the seconds until it makes sense to ask."""
        place = self._place()
        # Who is no longer alone is not passed for as long.
        place = min(place, self._line.get(self._scope.waiter_key, place))
        self._stand(place)
        ahead = sum(
            ticket <= place for waiter, ticket in self._line.items() if waiter != self._scope.waiter_key
        )
        return min(LONGEST_S, max(SHORTEST_S, TURN_S * ahead))

    def start_over(self) -> None:
        """Stand behind those who have had less."""
        self._stand(self._place())

    def leave(self) -> None:
        """Leave the line."""
        if self._scope.waiter_key in self._line:
            self._connection.execute(
                "DELETE FROM turns WHERE queue = ? AND waiter = ?",
                (self._scope.queue_key, self._scope.waiter_key),
            )

    def after(self, taken: Taken, needs: int) -> Taken:
        """Keep or leave the place in the line, by what a take of so many needs gave."""
        # Calls that are open hold up one model; others in the line may have room.
        if taken.refused or len(taken.grants) == needs or taken.waits_for == "in_flight":
            self.leave()
        elif not taken.grants:
            self.keep()
        else:
            self.start_over()
            if self.others_wait:
                return replace(taken, wait_s=SHORTEST_S, waits_for="turn")
        return taken

    def count(self, seconds: float) -> None:
        """Note what was taken, in seconds of the rate."""
        (served, since), (had, _) = self._had(""), self._had(self._scope.waiter_key)
        had = max(had, served)
        served = arithmetic.newcomers_place(had, served, self._now - since)
        queue = self._scope.queue_key
        self._connection.executemany(
            "REPLACE INTO had VALUES (?, ?, ?, ?)",
            [
                (queue, "", served, self._now),
                (queue, self._scope.waiter_key, had + seconds, self._now),
            ],
        )
        self._connection.execute("DELETE FROM had WHERE at < ?", (self._now - FORGOTTEN_S,))

    def _place(self) -> float:
        (served, _), (had, _) = self._had(""), self._had(self._scope.waiter_key)
        return arithmetic.place(had, served, self._others, self._scope.window_s)

    def _had(self, waiter: str) -> tuple[float, float]:
        """Return what was had, and when that was noted; of nobody, where newcomers stand."""
        row = self._connection.execute(
            "SELECT seconds, at FROM had WHERE queue = ? AND waiter = ?", (self._scope.queue_key, waiter)
        ).fetchone()
        return row or (0.0, self._now)

    def _stand(self, place: float) -> None:
        queue, waiter = self._scope.queue_key, self._scope.waiter_key
        self._connection.execute(
            "REPLACE INTO turns VALUES (?, ?, ?, ?, ?)",
            (queue, waiter, self._scope.priority, place, self._now + KEPT_S),
        )


def held_back(turns: Turns, gates: Gates, throttled_s: float, needs: Sequence[Need]) -> Taken | None:
    """Return the answer to who has to wait before limits are looked at; None for who has not."""
    closed_s, closed = gates.wait()
    if needs and closed_s:
        turns.leave()
        return Taken(grants=(), wait_s=closed_s, waits_for="gate", closed=closed)
    if throttled_s > 0:
        return Taken(grants=(), wait_s=throttled_s, waits_for="throttle" if needs else "")
    if needs and not turns.is_mine:
        return Taken(grants=(), wait_s=turns.keep(), waits_for="turn")
    return None
