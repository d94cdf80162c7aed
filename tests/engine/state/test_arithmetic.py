"""The sums behind a limit, on a clock that the test moves."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.state import arithmetic
from airflow_provider_llmbatch.engine.state.arithmetic import Gauge
from airflow_provider_llmbatch.engine.state.protocols import Meter
from airflow_provider_llmbatch.simulator.arrivals import max_in_window, use_of_limit

START = 1_800_000_000.0


def meter(capacity: int, window_s: float | None = 60.0, **further: object) -> Meter:
    usual = {"key": "a/tokens", "unit": "tokens", "burst_s": 5.0, "slack_s": 2.0}
    return Meter(capacity=capacity, window_s=window_s, **{**usual, **further})  # type: ignore[arg-type]


class Taker:
    """Takes what the sums allow, when they allow it."""

    def __init__(self, meter: Meter, factor: float = 1.0) -> None:
        self.meter = meter
        self.factor = factor
        self.now = START
        self.gauge = Gauge(level=arithmetic.burst(meter, factor), at=START, quanta={}, used=0)
        self.granted: list[tuple[float, int]] = []

    def wait(self, amount: int) -> float:
        arithmetic.refill(self.meter, self.gauge, self.now, self.factor)
        return arithmetic.wait(self.meter, self.gauge, amount, self.now, self.factor)

    def take(self, amount: int) -> float:
        """Wait as long as it takes, take, and return how long it took."""
        waited = 0.0
        while (wait := self.wait(amount)) > 0:
            assert wait < math.inf
            # A little late, as every process is.
            self.now += wait + 1e-6
            waited += wait
        arithmetic.take(self.meter, self.gauge, amount, self.now)
        self.granted.append((self.now, amount))
        return waited

    def take_all(self, amounts: Iterable[int]) -> None:
        for amount in amounts:
            self.take(amount)


@settings(deadline=None, max_examples=150)
@given(
    takes=st.lists(st.tuples(st.integers(1, 120), st.floats(0, 20)), min_size=1, max_size=120),
    slack_s=st.sampled_from([0.0, 0.2, 2.0]),
    burst_s=st.sampled_from([0.5, 5.0, 60.0]),
    factor=st.sampled_from([1.0, 0.35]),
)
def test_no_window_with_its_slack_ever_holds_more_than_the_limit(takes, slack_s, burst_s, factor):
    taker = Taker(meter(120, 6.0, slack_s=slack_s, burst_s=burst_s), factor)
    for amount, pause in takes:
        taker.take(amount)
        taker.now += pause
    assert max_in_window(taker.granted, 6.0 + slack_s) <= 120


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(2, 12), min_size=1, max_size=20))
def test_with_work_waiting_at_least_95_percent_of_the_limit_is_used(sizes):
    taker = Taker(meter(1200))
    while taker.now < START + 250.0:
        taker.take_all(sizes)
    # Judged at the service: by windows without the slack.
    assert use_of_limit(taker.granted, 60.0, 1200) >= 0.95


def test_one_request_a_second_uses_at_least_95_percent():
    taker = Taker(meter(60, unit="requests"))
    taker.take_all([1] * 400)
    assert use_of_limit(taker.granted, 60.0, 60) >= 0.95


def test_a_large_item_passes_when_the_bucket_is_full():
    """P07."""
    taker = Taker(meter(6000))
    assert taker.take(350) == 0.0
    # It left the bucket in debt: the rate is kept, and the next one passes when it is full again.
    assert 0.0 < taker.take(350) < 6.0
    assert taker.take(5000) < 62.3


def test_an_item_as_large_as_the_limit_passes_when_the_window_is_empty():
    taker = Taker(meter(1000))
    taker.take(1)
    assert 60.0 < taker.take(1000) < 63.0
    assert taker.wait(1001) == math.inf


def test_an_item_larger_than_what_throttling_leaves_still_passes():
    taker = Taker(meter(1000), factor=0.2)
    assert taker.take(900) < math.inf


def test_a_burst_after_a_pause_is_as_long_as_said():
    taker = Taker(meter(600, unit="requests", burst_s=5.0))
    taker.now += 3600.0
    at_once = 0
    while taker.wait(1) == 0.0:
        arithmetic.take(taker.meter, taker.gauge, 1, taker.now)
        at_once += 1
    assert at_once == math.floor(600 / 62.25 * 5)


def test_a_wait_is_as_long_as_it_takes_and_no_longer():
    taker = Taker(meter(100, burst_s=600.0))
    taker.take(60)
    taker.now += 10.0
    taker.take(40)
    wait = taker.wait(50)
    taker.now += wait - 0.01
    assert taker.wait(50) > 0
    taker.now += 0.02
    assert taker.wait(50) == 0.0


def test_a_budget_has_room_or_never_will():
    budget = meter(100, None, unit="micro_usd")
    gauge = Gauge(level=0.0, at=START, quanta={}, used=0)

    def wait(amount: int) -> float:
        return arithmetic.wait(budget, gauge, amount, START, 1.0)

    assert wait(101) == math.inf
    arithmetic.take(budget, gauge, 100, START)
    assert (wait(0), wait(1)) == (0.0, math.inf)
    arithmetic.take(budget, gauge, -40, START)
    assert (wait(40), wait(41)) == (0.0, math.inf)


def test_a_clock_that_goes_back_gives_nothing_away():
    taker = Taker(meter(100, burst_s=600.0))
    taker.take(100)
    taker.now -= 1000.0
    assert taker.wait(1) > 0


def test_who_came_first_is_passed_for_half_a_window_shared_by_all_who_wait():
    assert arithmetic.place(had=3.0, served=1.0, waiting=4, window_s=60.0) == 3.0
    assert arithmetic.place(had=300.0, served=1.0, waiting=4, window_s=60.0) == 1.0 + 30.0 / 4
    assert arithmetic.place(had=0.0, served=7.0, waiting=4, window_s=60.0) == 7.0, "newcomers have no claims"


def test_what_was_had_before_others_came_is_forgotten_a_little_faster_than_time_goes_by():
    assert arithmetic.newcomers_place(had=5.0, served=0.0, since_s=1.0) == 1.1
    assert arithmetic.newcomers_place(had=5.0, served=0.0, since_s=60.0) == 5.0
    assert arithmetic.newcomers_place(had=0.0, served=2.0, since_s=1.0) == 2.0
