"""
The sums behind a limit: token bucket, sliding window and line, free of storage and clock.

A take passes when both agree. The *bucket* keeps the flow even: it refills with the meter's rate and
holds ``burst_s`` seconds of it; a request larger than the bucket passes when the bucket is full and
leaves it in debt. The *window* is the hard cap: what was granted in any stretch of window plus arrival
slack never exceeds the capacity, so whatever a request's way to the service takes (up to the slack),
no window at the service exceeds it either.

The *line* of those who wait is in the order of what each has had, in seconds of the rate, so that equals
get equal amounts. Who came first may have had all that the bucket held: it is passed until the others have
caught up, but not for long, and what it had is forgotten with time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.state.protocols import Meter, Told

#: What a throttling answer makes of the share that it refused, and how low the factor can get.
FACTOR_DROP = 0.7
FACTOR_FLOOR = 0.05
#: How fast a throttled factor climbs: share of the rate per cubed window, away from what was refused.
FACTOR_STEEPNESS = 0.02
#: How fast it is forgotten what somebody had before others came, in seconds of the rate per second.
FORGOTTEN = 1.1
#: Windows for which somebody who has had more than others is passed at the most.
PASSED_WINDOWS = 0.5
#: Least that a turn counts, in seconds of the rate.
LEAST_S = 0.001
#: Windows for which a limit that the service told is believed.
BELIEVED_WINDOWS = 2.0


@dataclass(slots=True)
class Gauge:
    """The moving state of one meter."""

    #: what the bucket holds; negative after a large request
    level: float
    #: when ``level`` was true
    at: float
    #: amounts by quantum number, oldest first
    quanta: dict[int, int]
    #: sum of the quanta, or the total of a budget
    used: int


def refill(meter: Meter, gauge: Gauge, now: float, factor: float) -> None:
    """Let the bucket fill up to ``now`` and forget the quanta that have left the window."""
    rate = meter.rate * factor
    elapsed = max(0.0, now - gauge.at)
    gauge.level = min(gauge.level + elapsed * rate, burst(meter, factor))
    gauge.at = max(now, gauge.at)
    oldest = first_quantum(meter, now)
    for number in [n for n in gauge.quanta if n < oldest]:
        gauge.used -= gauge.quanta.pop(number)


def burst(meter: Meter, factor: float = 1.0) -> float:
    """Return what the bucket holds when full; at least one request fits."""
    return max(1.0, meter.rate * factor * meter.burst_s)


def first_quantum(meter: Meter, now: float) -> int:
    """Return the oldest quantum that still counts at ``now``."""
    return math.floor((now - meter.kept_s) / meter.quantum_s) + 1


def quantum(meter: Meter, at: float) -> int:
    """Return the number of the quantum that ``at`` falls into."""
    return math.floor(at / meter.quantum_s)


def correct(meter: Meter, gauge: Gauge, told: Told, now: float, limit: int) -> int:
    """
    Make room for what others have taken: no more is left than the service says.

    The gauge must have been refilled to ``now``.

    :param limit: what the window holds.
    :return: what was counted as taken by others.
    """
    if told.remaining is None:
        return 0
    gauge.level = min(gauge.level, float(told.remaining))
    missing = max(0, limit - told.remaining - gauge.used)
    if missing:
        gauge.used += missing
        number = quantum(meter, now)
        gauge.quanta[number] = gauge.quanta.get(number, 0) + missing
    return missing


def wait(meter: Meter, gauge: Gauge, amount: int, now: float, factor: float) -> float:
    """
    Return the seconds until ``amount`` fits; 0 when it fits now, ``inf`` when it never will.

    The gauge must have been refilled to ``now``.
    """
    if meter.window_s is None:
        return 0.0 if gauge.used + amount <= meter.capacity else math.inf
    if amount > meter.capacity:
        return math.inf
    capacity = max(amount, math.floor(meter.capacity * factor))
    return max(
        _bucket_wait(meter, gauge, amount, factor),
        _window_wait(meter, gauge.quanta.items(), gauge.used + amount - capacity, now),
    )


def take(meter: Meter, gauge: Gauge, amount: int, now: float) -> None:
    """Move ``amount`` into the gauge (negative gives it back)."""
    gauge.used += amount
    if meter.window_s is None:
        return
    gauge.level -= amount
    number = quantum(meter, now)
    gauge.quanta[number] = gauge.quanta.get(number, 0) + amount


def place(had: float, served: float, waiting: int, window_s: float) -> float:
    """
    Return the place in the line, least first.

    :param had: seconds of the rate that one has had, and ``served`` where newcomers stand.
    :param waiting: how many others wait.
    """
    return min(max(had, served), served + PASSED_WINDOWS * window_s / max(1, waiting))


def newcomers_place(had: float, served: float, since_s: float) -> float:
    """
    Return where newcomers stand in the line when somebody is served: there, unless time runs behind.

    :param had: what that one has had before, and ``served`` where newcomers stood ``since_s`` seconds ago.
    """
    return min(max(had, served), served + FORGOTTEN * max(0.0, since_s))


def recovered(low: float, ceiling: float, since_s: float, window_s: float) -> float:
    """
    Return what a throttled factor has climbed back to.

    It climbs fast at first, slowly near the ceiling, and ever faster beyond it: a limit that stays low is
    probed carefully, and one that is back is found within five windows.

    :param low: the factor right after the last refusal, and ``ceiling`` the share that was refused.
    :param since_s: seconds since then.
    """
    plateau = math.cbrt(max(0.0, ceiling - low) / FACTOR_STEEPNESS)
    return min(1.0, ceiling + FACTOR_STEEPNESS * (max(0.0, since_s) / window_s - plateau) ** 3)


def lowered(factor: float, used: float) -> tuple[float, float]:
    """
    Return the factor after the service said no, and its ceiling from now on.

    :param used: share of the fullest window that was in use when it said no. This is what the service
        refused, unless others use the limit as well; so it is believed only near the factor.
    """
    ceiling = max(FACTOR_FLOOR, min(factor, max(used, factor * FACTOR_DROP)))
    return max(FACTOR_FLOOR, ceiling * FACTOR_DROP), ceiling


def is_another_no(until: float, lowered_at: float, meters: Iterable[Meter], now: float) -> bool:
    """
    Whether a refusal says more than the last one did.

    Calls that were open together are refused together, and what was granted before a refusal may arrive up
    to the slack after it: all that is one "no".
    """
    slack_s = max((meter.slack_s for meter in meters if meter.window_s is not None), default=0.0)
    return now >= until and now - lowered_at >= slack_s


def _bucket_wait(meter: Meter, gauge: Gauge, amount: int, factor: float) -> float:
    missing = min(float(amount), burst(meter, factor)) - gauge.level
    return max(0.0, missing / (meter.rate * factor)) if missing > 1e-9 else 0.0


def _window_wait(meter: Meter, quanta: Iterable[tuple[int, int]], excess: int, now: float) -> float:
    if excess <= 0:
        return 0.0
    for number, amount in sorted(quanta):
        excess -= amount
        if excess <= 0:
            return max(0.0, number * meter.quantum_s + meter.kept_s - now)
    return math.inf
