"""Bags are spread evenly, whole and at home as far as that goes; every row once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.engine.fusion import needed  # noqa: F401  isort: skip

from airflow_provider_llmbatch.engine.fusion.balance import EVEN, balance_bags
from tests.engine.fusion.counting import loads_of

LOG_NORMAL = some.builds(
    lambda seed, ranks, bags, spread: (
        ranks,
        [round(random.Random(seed + n).lognormvariate(3.5, spread)) for n in range(ranks * bags)],
    ),
    some.integers(0, 2**30),
    some.integers(1, 16),
    some.integers(1, 16),
    some.floats(0.2, 1.5),
)


def rows_of(pieces, rows):
    """Return, of each bag, its rows in the order of its pieces."""
    found = [[] for _ in rows]
    for piece in sorted(pieces, key=lambda piece: (piece.bag, piece.start)):
        found[piece.bag] += range(piece.start, piece.stop)
    return found


@given(LOG_NORMAL)
def test_log_normal_bags_are_within_a_tenth_of_the_mean_and_no_row_is_lost(case):
    ranks, rows = case
    pieces = balance_bags(rows, ranks)
    mean = sum(rows) / ranks
    if mean and max(rows) <= mean:
        assert max(loads_of(pieces, ranks)) <= max(EVEN * mean, -(-sum(rows) // ranks))
    assert rows_of(pieces, rows) == [list(range(count)) for count in rows]


@given(some.integers(1, 6), some.lists(some.tuples(some.integers(0, 90), some.integers(0, 5))))
def test_any_bags_with_any_homes_are_spread_as_evenly(ranks, bags):
    rows, homes = [count for count, _ in bags], [home % ranks for _, home in bags]
    pieces = balance_bags(rows, ranks, homes)
    assert max(loads_of(pieces, ranks)) <= max(EVEN * sum(rows) / ranks, -(-sum(rows) // ranks))
    assert rows_of(pieces, rows) == [list(range(count)) for count in rows]
    assert pieces == balance_bags(rows, ranks, homes)


def test_bags_that_lie_evenly_do_not_move():
    pieces = balance_bags([30, 10, 20, 20], 2, homes=[0, 0, 1, 1])
    assert [(piece.rank, piece.bag) for piece in pieces] == [(0, 0), (0, 1), (1, 2), (1, 3)]


def test_only_what_is_too_much_leaves_home():
    pieces = balance_bags([64, 64, 64, 64, 8], 2, homes=[0, 0, 0, 0, 1])
    assert [(piece.rank, piece.bag, piece.rows) for piece in pieces if piece.bag in (2, 3, 4)] == [
        *[(1, 2, 64), (1, 3, 64), (1, 4, 8)]
    ]


@pytest.mark.parametrize(("rows", "ranks"), [([], 3), ([0, 0], 2)])
def test_where_there_is_nothing_nothing_is_spread(rows, ranks):
    assert balance_bags(rows, ranks) == []


def test_one_large_bag_is_cut_so_that_nobody_waits():
    assert loads_of(balance_bags([100], 4), 4) == [27, 27, 27, 19]
