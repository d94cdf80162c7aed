"""The sums that judge arrivals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.simulator.arrivals import (
    Arrival,
    ArrivalLog,
    doubles,
    max_in_window,
    read_arrivals,
    use_of_limit,
    windows_over,
)


def arrival(n: int, **changes: Any) -> Arrival:
    plain = {
        "time": 100.0 + n,
        "credential": "a",
        "account": "a",
        "model": "m-1",
        "tokens": 10,
        "prompt_tokens": 5,
        "sha": f"sha-{n}",
        "admitted": True,
        "in_flight": 1,
        "rule": None,
    }
    return Arrival(n=n, **{**plain, **changes})


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([(0.0, 5)], 5, id="one"),
        pytest.param([(0.0, 5), (10.0, 5)], 5, id="exactly one window apart"),
        pytest.param([(0.0, 5), (9.999, 5)], 10, id="just inside"),
        pytest.param([(9.0, 1), (0.0, 1), (5.0, 1), (11.0, 1)], 3, id="unordered"),
        pytest.param([(0.0, 1), (0.0, 2), (0.0, 3)], 6, id="same instant"),
    ],
)
def test_the_fullest_window_is_found(entries: list[tuple[float, int]], expected: int) -> None:
    assert max_in_window(entries, 10.0) == expected


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 9)), max_size=40))
def test_the_fullest_window_equals_a_search_over_all_starts(entries: list[tuple[float, int]]) -> None:
    fullest = max(
        (sum(cost for at, cost in entries if start <= at < start + 7.0) for start, _ in entries), default=0
    )
    assert max_in_window(entries, 7.0) == fullest


def test_windows_over_the_limit_are_counted_by_their_last_entry() -> None:
    entries = [(float(second), 1) for second in range(6)]
    assert windows_over(entries, 3.0, 3) == 0
    assert windows_over(entries, 3.0, 2) == 4


def test_use_is_the_share_from_the_second_full_window_to_the_last() -> None:
    burst_then_even = [(0.0, 1)] * 50 + [(float(second), 1) for second in range(1, 36)]
    assert use_of_limit(burst_then_even, 10.0, 10) == 1.0
    assert use_of_limit(burst_then_even, 10.0, 20) == 0.5


@pytest.mark.parametrize("entries", [[], [(0.0, 1)], [(0.0, 1), (19.0, 1)]])
def test_use_of_too_short_a_run_is_refused_with_words(entries: list[tuple[float, int]]) -> None:
    with pytest.raises(InputError, match=r"fewer than two full windows of 10 s"):
        use_of_limit(entries, 10.0, 10)


def test_a_question_admitted_twice_is_a_double_and_a_refused_one_is_not() -> None:
    log = [
        arrival(1, sha="x"),
        arrival(2, sha="x", admitted=False),
        arrival(3, sha="y"),
        arrival(4, sha="y"),
        arrival(5, sha="y"),
    ]
    assert doubles(log) == {"y": 3}


def test_arrivals_survive_their_json() -> None:
    log = [arrival(1), arrival(2, status=200, duration=0.5)]
    assert read_arrivals([row.to_json() for row in log]) == log


def test_a_log_closes_arrivals_and_goes_on_counting_after_a_reset() -> None:
    log = ArrivalLog()
    for number in (1, 2, 3):
        assert log.next_number == number
        log.add(arrival(number))
    log.close(2, 200, 102.5)
    assert [(row.status, row.duration) for row in log] == [(None, None), (200, 0.5), (None, None)]
    assert [row.n for row in log.since(1)] == [2, 3]
    log.clear()
    log.close(3, 200, 104.0)
    assert (len(log), log.next_number, log.in_flight) == (0, 4, 1)
    log.add(arrival(4))
    assert [row.n for row in log.since(0)] == [4]
