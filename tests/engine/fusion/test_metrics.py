"""Figures of an evaluation: known answers, bounds that hold what they should, dashes where there is none."""

from __future__ import annotations

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import numpy as np

from airflow_provider_llmbatch.engine.fusion import metrics
from airflow_provider_llmbatch.engine.fusion.evaluation_report import to_html, to_markdown


def two(yes) -> np.ndarray:
    return np.stack([1 - np.asarray(yes), yes], axis=1)


def honest(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities that come true as often as they say."""
    chance = np.random.default_rng(seed)
    yes = chance.random(count)
    return two(yes), (chance.random(count) < yes).astype(np.int64)


def test_auroc_is_the_chance_that_a_record_of_one_class_scores_above_one_of_the_other():
    said, truth = honest(60)
    high, low = said[truth == 1, 1][:, None], said[truth == 0, 1][None]
    assert metrics.auroc(said, truth) == pytest.approx((high > low).mean() + 0.5 * (high == low).mean())
    assert metrics.auroc(two([0.1, 0.9]), np.asarray([1, 0])) == 0.0
    assert metrics.auroc(two([0.1, 0.9]), np.asarray([1, 1])) is None


def test_what_comes_true_as_often_as_it_was_said_is_calibrated_and_what_does_not_is_not():
    said, truth = honest(4000)
    good = metrics.measured(said, truth, resamples=5)
    sure = metrics.measured(two(said[:, 1].round() * 0.98 + 0.01), truth, resamples=5)
    assert good["ece"] < 0.03
    assert sure["ece"] > 0.2
    assert good["log_loss"] == pytest.approx(0.5, abs=0.03)  # the integral of the entropy over all chances
    assert good["brier"] == pytest.approx(1 / 3, abs=0.02)
    rows = metrics.reliability(said, truth)
    assert sum(row["records"] for row in rows) == 4000
    assert all(row["from"] <= row["said"] <= row["to"] for row in rows)


def test_intervals_hold_the_figure_and_grow_narrow_with_more_records():
    widths = []
    for count in (50, 800):
        found = metrics.measured(*honest(count), resamples=100)
        low, high = found["auroc_interval"]
        assert low <= found["auroc"] <= high
        assert found["log_loss_interval"][0] <= found["log_loss"] <= found["log_loss_interval"][1]
        widths.append(high - low)
    assert widths[1] < widths[0] / 2


def test_three_classes_are_each_judged_against_the_others():
    truth = np.asarray([0, 1, 2] * 10)
    said = np.full((30, 3), 0.1)
    said[np.arange(30), truth] = 0.8
    found = metrics.measured(said, truth, resamples=20)
    assert found["auroc"] == 1.0
    assert found["ece"] == pytest.approx(0.2)
    assert metrics.auroc(said[:2], truth[:2]) is None


def test_a_figure_that_there_is_not_is_a_dash_in_the_report():
    said, truth = two([0.2, 0.3]), np.asarray([0, 0])
    figures = metrics.measured(said, truth, resamples=5)
    found = {
        "classes": 2,
        "unlabelled": 1,
        "model_digest": "0" * 64,
        "whole": figures,
        "subsets": {"ct": figures},
        "half_hidden": {name: {"auroc": None, "log_loss": 0.3} for name in ("marked", "zero_filled")},
        "reliability": metrics.reliability(said, truth),
    }
    assert "| AUROC | – | – |" in to_markdown(found)
    assert '<td>AUROC</td><td class="number">–</td>' in to_html(found)
