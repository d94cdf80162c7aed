"""Figures that hold for whole rollouts; ``make bench`` takes more of them."""

from __future__ import annotations

import pytest

from tests.engine.rollout.simulated import paused_in


@pytest.mark.slow
def test_two_versions_that_are_alike_are_hardly_ever_paused():
    # Every second one has a live metric as well.
    paused = [paused_in(10, seed, pairs=100, effect=0.0, live=seed % 2 * 100) > 0 for seed in range(200)]
    assert sum(paused) / len(paused) <= 0.05


def test_a_true_loss_of_five_hundredths_of_f1_is_paused_within_two_rounds():
    paused = [paused_in(2, seed, pairs=1000, effect=-0.05) == 2 for seed in range(100)]
    assert sum(paused) / len(paused) >= 0.95
