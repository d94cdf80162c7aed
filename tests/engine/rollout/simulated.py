"""Whole rollouts whose truth is known: how often they are paused."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from airflow_provider_llmbatch.engine.rollout.compare import compare
from airflow_provider_llmbatch.engine.rollout.gate import move, streaks_after
from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.engine.rollout.terms import LADDER, Rules
from tests.engine.rollout.trials import golden, paired

RULES = Rules(min_new=50)


def paused_in(
    rounds: int, seed: int, *, pairs: int, effect: float, resamples: int = 100, live: int = 0
) -> int:
    """
    Return in which round a rollout was paused, 0 for never; each round has answers of its own.

    :param pairs: items of the golden set.
    :param effect: the candidate's true effect on their F1.
    :param live: units of each arm, whose validity is the same in both.
    """
    draw = np.random.default_rng(seed)
    streaks: Mapping[str, int] = {}
    rate = LADDER[0]
    for number in range(1, rounds + 1):
        scores = [golden(pairs, effect, draw)] + ([_valid(live, draw)] if live else [])
        found = compare(scores, RULES, seed=seed, resamples=resamples, permutations=1)
        streaks = streaks_after(streaks, found)
        decided = move(rate, streaks, found, RULES, None)
        if decided.action == "pause":
            return number
        rate = decided.rate
    return 0


def _valid(units: int, draw: np.random.Generator) -> Scores:
    base, candidate = (draw.random((2, units)) < 0.95).astype(float)
    return paired(base, candidate, "validity", is_paired=False)
