from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.split.cut import balance, fill, raised_budget

SIZES = st.lists(st.integers(0, 200), min_size=1, max_size=60)


def cut(parts):
    return [part.units for part in parts]


@pytest.mark.parametrize(
    ("sizes", "budget", "expected"),
    [
        ([1, 1, 1, 1, 1], 2, [2, 2, 1]),
        ([3, 3, 3], 9, [3]),
        ([5, 9, 1], 6, [1, 1, 1]),
        ([9], 1, [1]),
        ([0, 0, 0], 1, [3]),
    ],
)
def test_parts_are_filled_one_after_the_other(sizes, budget, expected):
    assert cut(fill(lambda: sizes, budget)) == expected


@pytest.mark.parametrize(
    ("sizes", "budget", "most", "expected"),
    [
        ([1] * 10, 3, 16, [3, 2, 3, 2]),
        ([1] * 10, 1, 4, [3, 2, 3, 2]),
        ([1] * 8, 4, 16, [4, 4]),
        ([100, 1, 1, 1], 50, 4, [1, 3]),
        ([1, 1, 1, 100], 50, 4, [3, 1]),
        ([0, 0], 5, 4, [2]),
        ([7], 1, 4, [1]),
    ],
)
def test_balanced_parts_are_nearly_equal(sizes, budget, most, expected):
    assert cut(balance(lambda: sizes, budget, most)) == expected


@given(SIZES, st.integers(1, 500))
def test_filled_parts_keep_to_the_budget_and_lose_nothing(sizes, budget):
    parts = fill(lambda: sizes, budget)
    assert sum(part.units for part in parts) == len(sizes)
    assert sum(part.tokens for part in parts) == sum(sizes)
    assert all(part.tokens <= budget or part.units == 1 for part in parts)


@given(SIZES, st.integers(1, 500), st.integers(1, 16))
@example([0, 2, 3], 1, 2)
def test_the_raised_budget_is_the_smallest_that_gives_no_more_parts_than_asked_for(sizes, budget, most):
    raised = raised_budget(lambda: sizes, budget, most)
    assert raised >= budget
    assert len(fill(lambda: sizes, raised)) <= most
    assert raised == budget or len(fill(lambda: sizes, raised - 1)) > most


@given(SIZES, st.integers(1, 500), st.integers(1, 16))
def test_balanced_parts_lose_nothing_and_are_no_more_than_asked_for(sizes, budget, most):
    parts = balance(lambda: sizes, budget, most)
    assert len(parts) <= most
    assert sum(part.units for part in parts) == len(sizes)
    assert all(part.units for part in parts)


@given(SIZES, st.integers(1, 16))
def test_a_balanced_part_differs_from_its_share_by_no_more_than_the_largest_size(sizes, most):
    total = sum(sizes)
    for part in balance(lambda: sizes, max(1, -(-total // most)), most):
        assert part.tokens <= total / most + max(sizes) or part.units == 1
