"""How the factor finds a limit that nobody tells, and finds out that it is back: on a clock that is moved."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from airflow_provider_llmbatch.engine.state import arithmetic
from airflow_provider_llmbatch.engine.state.arithmetic import Gauge
from airflow_provider_llmbatch.engine.state.protocols import Meter
from airflow_provider_llmbatch.simulator.admission import SlidingWindow

WINDOW_S = 60.0
#: Seconds from a grant to the answer that refuses it; what was granted meanwhile is refused as well.
REFUSED_AFTER_S = 0.3


@dataclass
class Service:
    """Requests without end against a window that can be changed; nothing is told but no."""

    limit: int
    now: float = 1_800_000_000.0
    low: float = 1.0
    ceiling: float = 1.0
    lowered_at: float = 0.0
    until: float = 0.0
    admitted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.window = SlidingWindow(self.limit, WINDOW_S)
        self.meter = Meter(key="m", unit="requests", capacity=self.limit, window_s=WINDOW_S)
        self.gauge = Gauge(level=0.0, at=self.now, quanta={}, used=0)
        self.begin = self.now
        self.noes: list[tuple[float, float]] = []

    @property
    def factor(self) -> float:
        return arithmetic.recovered(self.low, self.ceiling, self.now - self.lowered_at, WINDOW_S)

    def go_on(self, windows: float) -> None:
        """Send for so many windows whatever the factor lets through."""
        until = self.now + windows * WINDOW_S
        while self.now < until:
            self._hear()
            arithmetic.refill(self.meter, self.gauge, self.now, self.factor)
            wait = arithmetic.wait(self.meter, self.gauge, 1, self.now, self.factor)
            wait = max(wait, self.until - self.now)
            if wait > 0:
                # No longer than a worker sleeps before it looks again.
                self.now += min(wait + 1e-6, 0.05)
                continue
            arithmetic.take(self.meter, self.gauge, 1, self.now)
            self._arrive()

    def _arrive(self) -> None:
        wait = self.window.wait(1, self.now)
        if wait > 0:
            self.refused.append(self.now)
            self.noes.append((self.now + REFUSED_AFTER_S, wait))
        else:
            self.window.take(1, self.now)
            self.admitted.append(self.now)

    def _hear(self) -> None:
        """Take in the refusals whose answers are here, as the stores do."""
        while self.noes and self.noes[0][0] <= self.now:
            _, wait = self.noes.pop(0)
            if arithmetic.is_another_no(self.until, self.lowered_at, [self.meter], self.now):
                used = self.gauge.used / self.meter.capacity
                self.low, self.ceiling = arithmetic.lowered(self.factor, used)
                self.lowered_at = self.now
            self.until = max(self.until, self.now + wait)

    def share(self, since: float, until: float, limit: int) -> float:
        """Return the share of ``limit`` that was used between two moments, in windows from now back."""
        first, last = self.now - since * WINDOW_S, self.now - until * WINDOW_S
        return sum(first <= at < last for at in self.admitted) / (limit * (since - until))

    def refusals(self, windows: float) -> float:
        """Return the share of requests that were refused in the last windows."""
        first = self.now - windows * WINDOW_S
        no, yes = (sum(at >= first for at in found) for found in (self.refused, self.admitted))
        return no / (no + yes)


@pytest.mark.parametrize("limit", [600, 3_000])
@pytest.mark.parametrize("sent", [2.0, 2.7])
@pytest.mark.parametrize(("share", "refused", "used"), [(0.5, 0.01, 0.88), (0.25, 0.02, 0.84)])
def test_a_limit_that_falls_is_found_within_a_window_and_its_return_within_five(
    limit: int, sent: float, share: float, refused: float, used: float
):
    service, less = Service(limit), round(limit * share)
    service.go_on(sent)
    assert service.refused == []
    service.window.limit = less
    service.go_on(7.0)
    assert service.refusals(6.0) < refused
    assert service.share(6.0, 0.0, less) > used
    service.window.limit = limit
    service.go_on(6.0)
    assert service.share(1.0, 0.0, limit) >= 0.9
    assert service.refusals(5.0) == 0.0


def test_one_no_of_somebody_elses_making_costs_half_the_rate_and_no_more():
    low, ceiling = arithmetic.lowered(1.0, used=0.0)
    assert low == pytest.approx(0.49)
    assert arithmetic.recovered(low, ceiling, 3 * WINDOW_S, WINDOW_S) > 0.7
    assert arithmetic.recovered(low, ceiling, 5 * WINDOW_S, WINDOW_S) == 1.0


def test_what_is_refused_together_is_one_no():
    meter = Meter(key="m", unit="requests", capacity=10, window_s=60.0, slack_s=2.0)
    assert not arithmetic.is_another_no(105.0, 100.0, [meter], 104.0), "the pause is not over"
    assert not arithmetic.is_another_no(100.5, 100.0, [meter], 101.0), "granted before, arrived after"
    assert arithmetic.is_another_no(101.0, 100.0, [meter], 102.1)


@pytest.mark.parametrize("used", [1.0, 0.6, 0.1, 0.0])
def test_a_factor_falls_to_its_floor_and_from_anywhere_is_back_within_five_windows(used: float):
    factor, low, ceiling = 1.0, 1.0, 1.0
    for _ in range(40):
        low, ceiling = arithmetic.lowered(factor, min(used, factor))
        assert arithmetic.FACTOR_FLOOR <= low < max(factor, 0.051)
        assert math.isclose(arithmetic.recovered(low, ceiling, 0.0, WINDOW_S), low)
        assert arithmetic.recovered(low, ceiling, 5 * WINDOW_S, WINDOW_S) >= 0.9
        factor = low
    assert low == arithmetic.FACTOR_FLOOR
