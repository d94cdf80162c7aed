"""How many calls to keep open: what the limits let through, times how long a call takes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from airflow_provider_llmbatch.engine.state.protocols import Meter

#: Seconds between two looks.
EVERY_S = 5.0
#: Room above what the rate needs, so that a slow call holds nobody up.
HEADROOM = 1.2
#: What a call is thought to take before the first one is over. Seconds.
FIRST_GUESS_S = 2.0
#: How many of the last calls the latency is judged by.
REMEMBERED = 256


def concurrency(meters: Sequence[Meter], mean_tokens: float, p95_s: float, most: int) -> int:
    """
    Return how many calls may be open: the granted rate times the latency, by Little's law.

    :param meters: what limits the flow; budgets do not.
    :param mean_tokens: tokens that a request reserves, on average.
    :param p95_s: seconds that nearly all calls take.
    :param most: never more than this.
    """
    rates = [
        meter.rate / (mean_tokens if meter.unit == "tokens" else 1.0)
        for meter in meters
        if meter.window_s is not None and meter.unit != "micro_usd"
    ]
    if not rates:
        return most
    return max(1, min(most, math.ceil(min(rates) * p95_s * HEADROOM)))


class Pace:
    """What the last calls were like."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._tokens = 0
        self._calls = 0

    def sent(self, tokens: int) -> None:
        """Note a call that leaves."""
        self._calls += 1
        self._tokens += tokens

    def over(self, seconds: float) -> None:
        """Note how long a call took."""
        self._seconds.append(seconds)

    def concurrency(self, meters: Sequence[Meter], oldest_s: float, most: int) -> int:
        """Return how many calls may be open now; see :func:`concurrency` and :meth:`p95`."""
        return concurrency(meters, self.mean_tokens, self.p95(oldest_s), most)

    @property
    def mean_tokens(self) -> float:
        """Tokens that a call reserved, on average; 1 before the first."""
        return self._tokens / self._calls if self._calls else 1.0

    def p95(self, oldest_s: float) -> float:
        """
        Return the seconds that nearly all calls take.

        :param oldest_s: age of the oldest call that is still open; it takes at least that long.
        """
        ranked = sorted(self._seconds)
        known = ranked[int(0.95 * (len(ranked) - 1))] if ranked else FIRST_GUESS_S
        return max(known, oldest_s)
