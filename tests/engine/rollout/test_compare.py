from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import stats

from airflow_provider_llmbatch.engine.rollout.compare import compare, holm, ks
from airflow_provider_llmbatch.engine.rollout.terms import Rules
from airflow_provider_llmbatch.engine.rollout.verdict import Comparison, Verdict
from tests.engine.rollout.trials import RULES, golden, paired


def only(scores, rules: Rules = RULES, **fields) -> Comparison:
    (found,) = compare([scores], rules, seed=7, **fields)
    return found


def draw(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("effect", "verdict"), [(-0.05, Verdict.WORSE), (0.0, Verdict.SAME), (0.05, Verdict.BETTER)]
)
def test_an_effect_beyond_the_threshold_is_found_in_a_thousand_pairs(effect, verdict):
    found = only(golden(1000, effect, draw()))
    assert found.verdict is verdict
    assert found.low < effect < found.high
    assert found.effect == pytest.approx(found.mean_candidate - found.mean_base)


def test_less_is_better_where_the_metric_says_so():
    cheap = paired(draw().normal(5, 1, 200), draw(2).normal(3, 1, 200), "cost_usd", lower_is_better=True)
    found = only(cheap)
    assert found.verdict is Verdict.BETTER
    assert (found.mean_base > found.mean_candidate, found.effect > 0) == (True, True)
    assert found.threshold == pytest.approx(0.1 * found.mean_base)


def test_the_probability_is_that_of_the_t_tests_against_the_threshold():
    base, candidate = draw().normal(0.5, 0.1, 80), draw(2).normal(0.5, 0.2, 90)
    together = stats.ttest_1samp(candidate[:80] - base, -0.01, alternative="less").pvalue
    assert only(paired(base, candidate[:80])).p == pytest.approx(together, rel=1e-9)
    apart = stats.ttest_ind(candidate + 0.01, base, equal_var=False, alternative="less").pvalue
    assert only(paired(base, candidate, is_paired=False)).p == pytest.approx(apart, rel=1e-9)


def test_units_are_compared_unpaired_where_the_arms_have_others():
    scores = paired(draw().normal(0.9, 0.1, 300), draw(2).normal(0.7, 0.1, 120), is_paired=False)
    found = only(scores)
    assert (found.base, found.candidate, found.verdict) == (300, 120, Verdict.WORSE)


def test_pairs_correlate_and_so_say_more_than_the_same_scores_apart():
    scores = golden(300, -0.05, draw(3))
    apart = paired(list(scores.base.values()), list(scores.candidate.values()), is_paired=False)
    together, alone = only(scores), only(apart)
    assert together.high - together.low < 0.7 * (alone.high - alone.low)
    assert together.power > alone.power


def test_calls_that_failed_are_missing_and_not_wrong():
    """P99: an arm that was throttled is compared by what both have, and what is missing is shown."""
    right = paired(np.ones(100), np.ones(60), missing_candidate=40)
    found = only(right)
    assert (found.base, found.missing_base, found.missing_candidate) == (60, 0, 40)
    assert (found.verdict, found.effect) == (Verdict.SAME, 0.0)


def test_a_trifle_in_a_large_sample_is_no_difference_though_its_p_is_small():
    """P97: the test of distributions and its distance are both shown, the effect decides."""
    base, candidate = draw().normal(0, 1, 200_000), draw(2).normal(0.01, 1, 200_000)
    rules = Rules(thresholds={"x": 0.02})
    found = only(paired(base, candidate, "x", is_paired=False), rules, resamples=100)
    assert found.ks_p < 0.05
    assert found.ks_distance < 0.01
    assert found.verdict is Verdict.SAME


def test_too_few_new_answers_and_what_could_not_be_graded_are_told_apart():
    few = only(paired(np.ones(49), np.zeros(49)))
    assert (few.verdict, few.base, few.effect) == (Verdict.NOT_ENOUGH, 49, None)
    failed = only(paired([], [], failure="no encoder"))
    assert (failed.verdict, failed.note) == (Verdict.NOT_RUN, "no encoder")
    assert "no encoder" in failed.told()


@pytest.mark.parametrize(
    ("base", "candidate", "verdict"),
    [(1.0, 1.0, Verdict.SAME), (1.0, 0.0, Verdict.WORSE), (0.0, 1.0, Verdict.BETTER)],
)
def test_scores_that_do_not_vary_are_compared_without_a_fuss(base, candidate, verdict):
    for is_paired in (True, False):
        found = only(paired(np.full(60, base), np.full(60, candidate), is_paired=is_paired))
        assert found.verdict is verdict
        assert found.low == found.high == candidate - base
        assert found == Comparison.from_json(found.to_json())


def test_holm_corrects_for_all_metrics_of_a_round():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    # Alone it is worse; among nine that say nothing, chance may have made it so.
    scores = golden(200, -0.052, draw(5))
    others = [golden(200, 0.0, draw(10 + n), f"other{n}") for n in range(9)]
    assert only(scores).verdict is Verdict.WORSE
    among = compare([scores, *others], RULES, seed=7)[0]
    assert among.high < -among.threshold
    assert among.p_holm > RULES.alpha
    assert among.verdict is Verdict.SAME


def test_distributions_are_tested_as_the_library_does_exactly_when_small_and_permuted_when_tied():
    base, candidate = draw().normal(0, 1, 80), draw(2).normal(0.5, 1, 90)
    distance, p, method = ks(base, candidate, 0, draw())
    expected = stats.ks_2samp(base, candidate, method="exact")
    assert (distance, p, method) == (expected.statistic, expected.pvalue, "exact")
    ones, mixed = np.repeat([0.0, 1.0], [20, 60]), np.repeat([0.0, 0.5, 1.0], [25, 5, 60])
    distance, p, method = ks(ones, mixed, 4000, draw())
    assert method == "permutation"
    assert distance == pytest.approx(stats.ks_2samp(ones, mixed).statistic)
    # Tables for samples without ties overrate chance.
    assert p < stats.ks_2samp(ones, mixed).pvalue
    assert ks(ones, ones, 100, draw())[:2] == (pytest.approx(0.0, abs=1e-9), 1.0)
    assert ks(draw().normal(0, 1, 600), candidate, 0, draw())[2] == "asymptotic"


def test_the_same_seed_gives_the_same_figures():
    scores = golden(100, 0.0, draw())
    assert only(scores) == only(scores)


def test_the_power_says_how_often_twice_the_threshold_would_be_found():
    rules = Rules(thresholds={"token_f1": 0.03})
    told = only(golden(400, 0.0, draw()), rules, resamples=200).power
    rounds = [only(golden(400, -0.06, draw(100 + n)), rules, resamples=200) for n in range(200)]
    found = sum(one.verdict is Verdict.WORSE for one in rounds) / len(rounds)
    assert found == pytest.approx(told, abs=0.12)
    assert 0.3 < told < 0.9


def test_a_thousand_against_a_thousand_takes_a_moment():
    scores = golden(1000, 0.0, draw())
    tied = paired(np.round(list(scores.base.values()), 1), np.round(list(scores.candidate.values()), 1))
    only(scores)
    for one, seconds in ((scores, 0.1), (tied, 5.0)):
        took = []
        for _ in range(5):
            began = time.process_time()
            only(one)
            took.append(time.process_time() - began)
        assert min(took) < seconds
