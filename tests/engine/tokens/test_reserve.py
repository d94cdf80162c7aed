from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.tokens.reserve import (
    DEFAULT_OUTPUT_TOKENS,
    Drift,
    LearntReserve,
    output_cap,
    output_tokens,
)


@pytest.mark.parametrize(
    ("params", "cap"),
    [
        ({}, None),
        ({"max_tokens": 100}, 100),
        ({"max_completion_tokens": 200}, 200),
        ({"max_tokens": 100, "max_completion_tokens": 200}, 200),
        ({"max_tokens": None}, None),
        ({"max_tokens": True}, None),
    ],
)
def test_a_cap_in_the_parameters_is_what_is_reserved(params, cap):
    assert output_cap(params) == cap
    assert output_tokens(params, learnt=512, room=50) == (cap or 50)


@pytest.mark.parametrize(("room", "reserved"), [(None, 512), (10_000, 512), (488, 488), (0, 1), (-5, 1)])
def test_a_learnt_reserve_gives_way_to_the_room_that_is_left(room, reserved):
    assert output_tokens({}, learnt=512, room=room) == reserved


def test_before_any_reply_the_default_is_reserved():
    assert LearntReserve()() == DEFAULT_OUTPUT_TOKENS == 512
    assert LearntReserve(64)() == 64


def test_a_few_short_replies_do_not_lower_the_reserve_and_one_long_reply_raises_it():
    reserve = LearntReserve()
    for _ in range(10):
        reserve.observe(10)
    assert reserve() == 512
    reserve.observe(2000)
    assert reserve() == 2000


def test_enough_replies_bring_the_reserve_near_their_upper_end():
    reserve = LearntReserve()
    for length in range(1, 101):
        reserve.observe(length)
    assert reserve() == 114  # 95 of 100, and a fifth on top


def test_old_replies_are_forgotten():
    reserve = LearntReserve()
    for _ in range(256):
        reserve.observe(5000)
    for _ in range(256):
        reserve.observe(10)
    assert reserve() == 12


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=600))
def test_the_reserve_lies_within_what_was_seen(lengths):
    reserve = LearntReserve()
    for length in lengths:
        reserve.observe(length)
    assert 1 <= reserve() <= max(DEFAULT_OUTPUT_TOKENS, max(lengths) * 1.2 + 1)


def test_the_drift_follows_what_the_service_counts():
    drift = Drift()
    assert drift.ratio == 1.0
    for _ in range(200):
        drift.observe(counted=1000, used=1100)
    assert drift.ratio == pytest.approx(1.1, abs=0.001)


def test_a_call_without_usage_does_not_move_the_drift():
    drift = Drift()
    drift.observe(counted=0, used=10)
    drift.observe(counted=10, used=0)
    assert drift.ratio == 1.0
