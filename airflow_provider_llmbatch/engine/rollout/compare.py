"""
Compare the scores of two arms, metric by metric.

The effect is the mean difference, with a bootstrap interval: of pairs where both arms have answered the same
items, else of units, whose items were assigned together and so count as one. The distributions are compared
by Kolmogorov and Smirnov's test; it is shown and decides nothing, as it finds any trifle in large samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.engine.rollout.terms import Rules
from airflow_provider_llmbatch.engine.rollout.verdict import Comparison, Verdict

Array = NDArray[np.float64]

#: Resamples of the bootstrap, and permutations of the test of distributions.
RESAMPLES = 2_000
PERMUTATIONS = 1_000
#: Numbers that are drawn at once.
_AT_ONCE = 2**21
#: Units up to which the exact distribution of the Kolmogorov–Smirnov distance is counted out.
EXACT_UP_TO = 500
#: Units of both arms up to which tied samples are permuted.
PERMUTE_UP_TO = 20_000


class _Effect(NamedTuple):
    mean: float
    low: float
    high: float
    error: float


def compare(
    scores: Sequence[Scores],
    rules: Rules,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    permutations: int = PERMUTATIONS,
) -> tuple[Comparison, ...]:
    """
    Compare two arms by all metrics of a round.

    :param seed: of all that is drawn; the same one gives the same figures.
    :param resamples: of the bootstrap.
    :param permutations: of the test of distributions, where samples have ties.
    """
    found = [
        _compared(each, rules, seed + place, resamples, permutations) for place, each in enumerate(scores)
    ]
    known = [each for each in found if each.p is not None]
    adjusted = dict(
        zip((each.metric for each in known), holm([each.p or 0.0 for each in known]), strict=True)
    )
    return tuple(_judged(each, rules, adjusted, len(known)) for each in found)


def holm(values: Sequence[float]) -> list[float]:
    """
    Return probabilities after Holm's step-down correction.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, values[place] * (len(values) - rank)))
        adjusted[place] = highest
    return adjusted


def _compared(scores: Scores, rules: Rules, seed: int, resamples: int, permutations: int) -> Comparison:
    base, candidate = _arrays(scores)
    bare = Comparison(
        metric=scores.metric,
        verdict=Verdict.NOT_RUN if scores.failure else Verdict.NOT_ENOUGH,
        paired=scores.paired,
        base=base.size,
        candidate=candidate.size,
        missing_base=scores.missing_base,
        missing_candidate=scores.missing_candidate,
        note=scores.failure or scores.note,
    )
    if scores.failure or min(base.size, candidate.size) < rules.min_new:
        return bare
    threshold = rules.threshold(scores.metric, float(base.mean()))
    sign = -1.0 if scores.lower_is_better else 1.0
    draw = np.random.default_rng(seed)
    effect = _effect(sign * base, sign * candidate, scores.paired, rules.alpha, resamples, draw)
    distance, ks_p, method = ks(base, candidate, permutations, draw)
    return replace(
        bare,
        verdict=Verdict.SAME,
        mean_base=float(base.mean()),
        mean_candidate=float(candidate.mean()),
        threshold=threshold,
        effect=effect.mean,
        low=effect.low,
        high=effect.high,
        p=_p(effect, sign * base, sign * candidate, scores.paired, threshold),
        # Of the standard error only the share of the threshold is needed for the power.
        power=np.inf if effect.error == 0 else threshold / effect.error,
        ks_distance=distance,
        ks_p=ks_p,
        ks_method=method,
    )


def _arrays(scores: Scores) -> tuple[Array, Array]:
    """Return what is compared: of pairs, what both arms have."""
    base, candidate = scores.base, scores.candidate
    if scores.paired:
        base, candidate = (
            {unit: arm[unit] for unit in scores.base if unit in scores.candidate} for arm in (base, candidate)
        )
    return np.array(list(base.values()), dtype=float), np.array(list(candidate.values()), dtype=float)


def _effect(
    base: Array, candidate: Array, paired: bool, alpha: float, resamples: int, draw: np.random.Generator
) -> _Effect:
    samples = (candidate - base,) if paired else (candidate, base)
    error = float(np.sqrt(sum(sample.var(ddof=1) / sample.size for sample in samples)))
    mean = float(candidate.mean() - base.mean())
    found: Any = stats.bootstrap(
        samples,
        _mean if paired else _mean_difference,
        n_resamples=resamples,
        batch=max(1, _AT_ONCE // max(sample.size for sample in samples)),
        vectorized=True,
        confidence_level=1 - alpha,
        method="percentile",
        rng=draw,
    )
    low, high = found.confidence_interval
    return _Effect(mean, float(low), float(high), error)


def _mean(sample: Array, axis: int = -1) -> Array:
    return np.asarray(sample.mean(axis=axis))


def _mean_difference(candidate: Array, base: Array, axis: int = -1) -> Array:
    return np.asarray(candidate.mean(axis=axis) - base.mean(axis=axis))


def _p(effect: _Effect, base: Array, candidate: Array, paired: bool, threshold: float) -> float:
    """Return how probable such an effect is, or a lower one, if the true one were minus the threshold."""
    # Samples that do not vary leave nothing to chance, but for what rounding makes of them.
    if effect.error <= 1e-12 * max(1.0, abs(effect.mean)):
        return 0.0 if effect.mean < -threshold else 1.0
    if paired:
        return float(stats.t.cdf((effect.mean + threshold) / effect.error, base.size - 1))
    arms = [(sample.mean(), sample.std(ddof=1), sample.size) for sample in (candidate + threshold, base)]
    found = stats.ttest_ind_from_stats(*arms[0], *arms[1], equal_var=False, alternative="less")
    return float(found.pvalue)


def _judged(found: Comparison, rules: Rules, adjusted: Mapping[str, float], metrics: int) -> Comparison:
    if found.p is None or found.threshold is None or found.low is None or found.high is None:
        return found
    p_holm = adjusted[found.metric]
    verdict = Verdict.SAME
    if found.high < -found.threshold and p_holm <= rules.alpha:
        verdict = Verdict.WORSE
    elif found.low > found.threshold:
        verdict = Verdict.BETTER
    # To be found worse, the interval and the first step of Holm's procedure must leave the threshold out.
    needed = max(stats.norm.isf(rules.alpha / 2), stats.norm.isf(rules.alpha / metrics))
    power = float(stats.norm.cdf((found.power or 0.0) - needed))
    return replace(found, verdict=verdict, p_holm=p_holm, power=power)


def ks(
    base: Array, candidate: Array, permutations: int, draw: np.random.Generator
) -> tuple[float, float, str]:
    """
    Return the largest distance of two distributions, its probability, and how that was got.

    The usual tables hold for samples without ties, and the asymptotic ones for large samples. So small ones
    are counted out, and tied ones permuted.
    """
    pooled = np.concatenate([base, candidate])
    tied = np.unique(pooled).size < pooled.size
    if tied and pooled.size <= PERMUTE_UP_TO:
        return (*_permuted(pooled, base.size, permutations, draw), "permutation")
    exact = not tied and max(base.size, candidate.size) <= EXACT_UP_TO
    found: Any = stats.ks_2samp(base, candidate, method="exact" if exact else "asymp")
    return float(found.statistic), float(found.pvalue), "exact" if exact else "asymptotic"


def _permuted(pooled: Array, size: int, permutations: int, draw: np.random.Generator) -> tuple[float, float]:
    """Return the distance, and in what share of the permutations it is as large: (hits + 1) / (tries + 1)."""
    order = np.argsort(pooled, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(pooled[order]) > 0, True))
    weights = np.where(order < size, 1.0 / size, -1.0 / (pooled.size - size))

    def distances(rows: Array) -> Array:
        return np.asarray(np.abs(np.cumsum(rows, axis=-1)[..., ends]).max(axis=-1))

    seen = float(distances(weights))
    hits, left = 0, permutations
    while left:
        many = min(left, max(1, _AT_ONCE // pooled.size))
        drawn = draw.permuted(np.broadcast_to(weights, (many, weights.size)), axis=1)
        # Sums of the same numbers in another order differ in their last digits.
        hits += int((distances(drawn) >= seen - 1e-12).sum())
        left -= many
    return seen, (hits + 1) / (permutations + 1)
