"""
What reached the server, and the sums that judge it.

Standard library only, so that tests and benchmarks can judge the JSON of ``/_sim/arrivals`` without a
server. A window is half-open, ``[t, t + window)``: of two requests exactly one window apart, only one is
in it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from airflow_provider_llmbatch.errors import InputError

TimesAndCosts = Iterable[tuple[float, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One chat call as the server saw it."""

    #: number of the arrival, from 1
    n: int
    #: Unix seconds at which the whole body was there
    time: float
    #: id of the key; empty when there was none or it is unknown
    credential: str
    #: whose limits it takes from
    account: str
    model: str
    #: tokens that it takes from the limit, as counted: reserved or used
    tokens: int
    prompt_tokens: int
    #: SHA-256 of the body, free of key order and white space: the identity of the question
    sha: str
    #: whether admission control let it in
    admitted: bool
    #: calls open at the server, this one included
    in_flight: int
    #: number of the scenario rule that answered, from 0; None without one
    rule: int | None
    #: what was answered: 0 when the connection was reset first, 499 when the client left, None while open
    status: int | None = None
    #: seconds from the arrival to the end of the answer; None while open
    duration: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the row of ``/_sim/arrivals``."""
        return asdict(self)


def read_arrivals(rows: Iterable[Mapping[str, Any]]) -> list[Arrival]:
    """Return the arrivals behind the JSON of ``/_sim/arrivals``."""
    names = {field.name for field in fields(Arrival)}
    return [Arrival(**{name: row[name] for name in names}) for row in rows]


class ArrivalLog:
    """All arrivals since the start or the last reset, in order."""

    def __init__(self) -> None:
        self._arrivals: list[Arrival] = []
        self._first = 1
        #: calls that have come in and not ended, those from before a reset included
        self.in_flight = 0

    def __iter__(self) -> Iterator[Arrival]:
        """Yield the arrivals by number."""
        return iter(self._arrivals)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._arrivals)

    @property
    def next_number(self) -> int:
        """The number of the next arrival; it never goes back."""
        return self._first + len(self._arrivals)

    def since(self, number: int) -> list[Arrival]:
        """Return the arrivals with a number above ``number``."""
        return self._arrivals[max(0, number + 1 - self._first) :]

    def add(self, arrival: Arrival) -> None:
        """Note that a call has come in."""
        self._arrivals.append(arrival)
        self.in_flight += 1

    def close(self, number: int, status: int, now: float) -> None:
        """Note what a call was answered; one from before a reset is gone."""
        self.in_flight -= 1
        place = number - self._first
        if place >= 0:
            arrival = self._arrivals[place]
            self._arrivals[place] = replace(arrival, status=status, duration=max(0.0, now - arrival.time))

    def clear(self) -> None:
        """Forget all arrivals; numbers go on."""
        self._first = self.next_number
        self._arrivals.clear()


def max_in_window(times_and_costs: TimesAndCosts, window_s: float) -> int:
    """Return the largest sum of costs in any sliding window of ``window_s`` seconds; 0 without entries."""
    return max((held for _, held in _trailing(times_and_costs, window_s)), default=0)


def windows_over(times_and_costs: TimesAndCosts, window_s: float, limit: int) -> int:
    """Return how many entries end a window that holds more than ``limit``."""
    return sum(held > limit for _, held in _trailing(times_and_costs, window_s))


def use_of_limit(times_and_costs: TimesAndCosts, window_s: float, limit: int) -> float:
    """
    Return the share of ``limit`` that was used from the second full window to the last.

    Windows are counted from the first entry; the first is left out because everything may start in it at
    once, the part after the last full one because the work runs out there.

    :raises InputError: when the entries span fewer than two full windows.
    """
    entries = sorted(times_and_costs)
    span = entries[-1][0] - entries[0][0] if entries else 0.0
    full = int(span // window_s)
    if full < 2:
        raise InputError(
            f"the arrivals span {span:.3f} s, fewer than two full windows of {window_s:g} s; send more work"
        )
    start, stop = entries[0][0] + window_s, entries[0][0] + full * window_s
    return sum(cost for at, cost in entries if start <= at < stop) / (limit * (full - 1))


def doubles(arrivals: Iterable[Arrival]) -> dict[str, int]:
    """Return, by body SHA-256, how often a question was admitted when that was more than once."""
    counts = Counter(arrival.sha for arrival in arrivals if arrival.admitted)
    return {sha: count for sha, count in counts.items() if count > 1}


def _trailing(times_and_costs: TimesAndCosts, window_s: float) -> Iterator[tuple[float, int]]:
    held, window = 0, deque[tuple[float, int]]()
    for at, cost in sorted(times_and_costs):
        window.append((at, cost))
        held += cost
        while window[0][0] + window_s <= at:
            held -= window.popleft()[1]
        yield at, held
