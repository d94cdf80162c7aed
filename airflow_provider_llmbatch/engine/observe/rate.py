"""How fast a run is."""

from __future__ import annotations

from collections import deque

#: Seconds over which the rate is measured.
RATE_WINDOW_S = 60.0


class Rate:
    """
    Items per second over the last minute, whoever asks and however often.

    :param started: when nothing was done yet.
    """

    def __init__(self, started: float) -> None:
        self._marks: deque[tuple[float, int]] = deque([(started, 0)])

    def at(self, now: float, done: int) -> float:
        """
        Return the rate.

        :param now: on the clock of ``started``.
        :param done: items that are done by now.
        """
        while len(self._marks) > 1 and now - self._marks[0][0] > RATE_WINDOW_S:
            self._marks.popleft()
        since, before = self._marks[0]
        self._marks.append((now, done))
        return (done - before) / (now - since) if now > since else 0.0
