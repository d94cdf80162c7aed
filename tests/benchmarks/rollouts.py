"""Rollouts whose truth is known, and how long grading and comparing take on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from airflow_provider_llmbatch.engine.items import Outcome, Result
from airflow_provider_llmbatch.engine.rollout.compare import compare
from airflow_provider_llmbatch.engine.rollout.grader import Answer
from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.engine.rollout.texts import Bleu, TokenF1
from tests.benchmarks import work
from tests.engine.rollout.simulated import RULES, paused_in
from tests.engine.rollout.trials import golden, paired

PAIRS = 1_000


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Return how often versions that are alike and one that is worse are paused, and seconds."""
    alike, worse = (20, 10) if quick else (1_000, 400)
    falsely = sum(paused_in(10, seed, pairs=100, effect=0.0, live=100) > 0 for seed in range(alike))
    rightly = sum(paused_in(2, seed, pairs=PAIRS, effect=-0.05) == 2 for seed in range(worse))
    scores = golden(PAIRS, 0.0, np.random.default_rng(1))
    return {
        "rollout_paused_by_mistake": falsely / alike,
        "rollout_paused_rightly": rightly / worse,
        "rollout_grade_s": round(_seconds(_grade), 3),
        "rollout_compare_s": round(_compared(scores), 3),
        "rollout_compare_tied_s": round(_compared(_rounded(scores)), 3),
    }


def _compared(scores: Scores) -> float:
    return _seconds(lambda: compare([scores], RULES, seed=1))


def _rounded(scores: Scores) -> Scores:
    base, candidate = (np.round(list(arm.values()), 1) for arm in (scores.base, scores.candidate))
    return paired(base, candidate)


def _grade() -> None:
    answers = []
    for index in range(PAIRS):
        result = Result(index=index, id=str(index), outcome=Outcome.OK, output=work.text(index, 40))
        answers.append(Answer(result=result, unit=str(index), reference=work.text(index + 1, 40)))
    for grader in (Bleu(), TokenF1()):
        grader.grade(answers)


def _seconds(act: Callable[[], object]) -> float:
    act()
    began = time.process_time()
    act()
    return time.process_time() - began
