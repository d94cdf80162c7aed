from __future__ import annotations

import numpy as np
import pytest

from airflow_provider_llmbatch.engine.rollout.distribution import distribution
from tests.engine.rollout.trials import paired


def test_counts_are_those_of_a_library():
    draw = np.random.default_rng(7)
    base, candidate = draw.normal(400, 90, 500), draw.normal(380, 120, 300)
    found, bins = distribution(paired(base, candidate)), 20
    edges = np.linspace(min(base.min(), candidate.min()), max(base.max(), candidate.max()), bins + 1)
    assert found.edges == pytest.approx(edges)
    assert list(found.base) == np.histogram(base, edges)[0].tolist()
    assert list(found.candidate) == np.histogram(candidate, edges)[0].tolist()


def test_shares_are_counted_from_nothing_to_one():
    found = distribution(paired([0.5, 1.0], [0.0]), 4)
    assert found.edges == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert (found.base, found.candidate) == ((0, 0, 1, 1), (1, 0, 0, 0))


def test_no_scores_have_no_distribution_and_equal_ones_a_single_bin():
    assert distribution(paired([], [])) is None
    found = distribution(paired([7.0, 7.0], [7.0]))
    assert (found.edges, found.base, found.candidate) == ((7.0, 7.0), (2,), (1,))
    wide = distribution(paired([-1e308], [1e308]))
    assert (wide.base, wide.candidate) == ((1,), (1,))
