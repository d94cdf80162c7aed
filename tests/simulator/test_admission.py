"""Admission control as sums, with the time passed in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.simulator.admission import Admission, SlidingWindow
from airflow_provider_llmbatch.simulator.arrivals import max_in_window

CALLS = st.lists(st.tuples(st.floats(0, 3), st.integers(1, 60)), max_size=60)


def admission(**changes: Any) -> Admission:
    return Admission(**{"rpm": 10, "tpm": 1000, "window_s": 60.0, **changes})


def test_a_window_holds_a_cost_for_exactly_its_width() -> None:
    window = SlidingWindow(10, 5.0)
    window.take(7, 100.0)
    assert window.used(104.999) == 7
    assert window.used(105.0) == 0


def test_a_window_tells_the_wait_for_the_entries_that_have_to_leave() -> None:
    window = SlidingWindow(10, 5.0)
    for at, cost in ((100.0, 4), (101.0, 4), (102.0, 2)):
        window.take(cost, at)
    assert window.wait(4, 103.0) == 2.0
    assert window.wait(5, 103.0) == 3.0
    assert window.wait(10, 103.0) == 4.0
    assert window.wait(11, 103.0) == float("inf")


def test_the_request_limit_admits_exactly_its_number() -> None:
    gate = admission()
    refusals = [gate.take("a", 1, 50.0) for _ in range(13)]
    assert [refusal is None for refusal in refusals] == [True] * 10 + [False] * 3
    assert refusals[-1] is not None
    assert (refusals[-1].kind, refusals[-1].used, refusals[-1].wait_s) == ("requests", 10, 60.0)


def test_the_token_limit_counts_what_calls_take() -> None:
    gate = admission()
    assert gate.take("a", 600, 0.0) is None
    assert gate.take("a", 400, 10.0) is None
    refusal = gate.take("a", 700, 20.0)
    assert refusal is not None
    assert (refusal.kind, refusal.limit, refusal.used, refusal.requested) == ("tokens", 1000, 1000, 700)
    assert refusal.wait_s == 50.0


def test_a_request_above_the_whole_limit_has_no_wait() -> None:
    refusal = admission().take("a", 1001, 0.0)
    assert refusal is not None
    assert (refusal.kind, refusal.wait_s) == ("tokens", None)


def test_accounts_do_not_share_limits() -> None:
    gate = admission(rpm=1)
    assert gate.take("a", 1, 0.0) is None
    assert gate.take("b", 1, 0.0) is None
    assert gate.take("a", 1, 0.0) is not None


def test_a_refused_request_counts_only_when_told_so() -> None:
    for failed_counts, admitted_again in ((False, True), (True, False)):
        gate = admission(rpm=2, failed_counts=failed_counts)
        gate.take("a", 1, 0.0)
        gate.take("a", 1, 0.0)
        for second in range(10, 50, 10):
            gate.take("a", 1, float(second))
        assert (gate.take("a", 1, 60.0) is None) is admitted_again


def test_the_wait_of_a_refused_request_that_counts_includes_itself() -> None:
    gate = admission(rpm=2, failed_counts=True)
    gate.take("a", 1, 0.0)
    gate.take("a", 1, 5.0)
    refusal = gate.take("a", 1, 10.0)
    assert refusal is not None
    assert refusal.wait_s == 55.0
    assert gate.take("a", 1, 65.0) is None


def test_quanta_spread_the_load_when_a_burst_is_given() -> None:
    gate = admission(rpm=60, burst=2.0)
    assert [gate.take("a", 1, 0.0) is None for _ in range(3)] == [True, True, False]
    refusal = gate.take("a", 1, 0.5)
    assert refusal is not None
    assert refusal.wait_s == 0.5
    assert gate.take("a", 1, 1.0) is None


def test_an_empty_quantum_admits_a_request_larger_than_its_share() -> None:
    gate = admission(tpm=6000, burst=1.0)
    assert gate.take("a", 350, 0.0) is None
    refusal = gate.take("a", 350, 0.4)
    assert refusal is not None
    assert refusal.wait_s == pytest.approx(0.6)


def test_other_limits_apply_to_what_was_taken_before() -> None:
    gate = admission(rpm=2)
    gate.take("a", 1, 0.0)
    gate.take("a", 1, 0.0)
    gate.change(rpm=3)
    assert gate.take("a", 1, 1.0) is None
    gate.change(rpm=1, tpm=500)
    assert gate.standing("a", 2.0)["requests"].remaining == 0
    assert gate.standing("a", 2.0)["tokens"].limit == 500


def test_the_standing_tells_rest_and_time_until_whole() -> None:
    gate = admission()
    gate.take("a", 300, 0.0)
    gate.take("a", 200, 15.0)
    tokens = gate.standing("a", 20.0)["tokens"]
    assert (tokens.limit, tokens.remaining, tokens.reset_s) == (1000, 500, 55.0)


@given(CALLS, st.booleans(), st.sampled_from([None, 1.0, 3.0]))
def test_no_sliding_window_is_ever_over_and_every_wait_is_true(
    calls: list[tuple[float, int]], failed_counts: bool, burst: float | None
) -> None:
    gate = admission(rpm=8, tpm=200, window_s=6.0, burst=burst, failed_counts=failed_counts)
    now, admitted = 1_800_000_000.0, []
    for gap, tokens in calls:
        now += gap
        refusal = gate.take("a", tokens, now)
        if refusal is not None and refusal.wait_s is not None:
            assert refusal.wait_s > 0
            now += refusal.wait_s + 1e-6
            refusal = gate.take("a", tokens, now)
            assert refusal is None
        if refusal is None:
            admitted.append((now, tokens))
    assert max_in_window(((at, 1) for at, _ in admitted), 6.0) <= 8
    assert max_in_window(admitted, 6.0) <= 200


@given(CALLS)
def test_what_fits_is_never_refused(calls: list[tuple[float, int]]) -> None:
    gate = admission(rpm=8, tpm=200, window_s=6.0)
    now, admitted = 0.0, list[tuple[float, int]]()
    for gap, tokens in calls:
        now += gap
        held = [(at, cost) for at, cost in admitted if at + 6.0 > now]
        fits = len(held) < 8 and sum(cost for _, cost in held) + tokens <= 200
        assert (gate.take("a", tokens, now) is None) is fits
        if fits:
            admitted.append((now, tokens))
