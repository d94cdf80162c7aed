"""What the tests of rollouts share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from airflow_provider_llmbatch.engine.items import PromptRef
from airflow_provider_llmbatch.engine.journal import Person
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.engine.rollout.steps import Steps
from airflow_provider_llmbatch.engine.rollout.terms import Rules, Terms, Version
from airflow_provider_llmbatch.engine.rollout.verdict import Comparison, Verdict

ANN = Person(id="1", name="ann")
NOW = 1_800_000_000.0
RULES = Rules(min_new=50)


def version(number: str, **params: Any) -> Version:
    return Version(prompt=PromptRef(name="p", version=number, sha=number * 64), params=params)


TERMS = Terms(dag="d", name="shorter", base=version("1"), candidate=version("2"))


def opened(path: Any, terms: Terms = TERMS, rules: Rules = RULES) -> Steps:
    steps = Steps(open_folder(str(path)))
    steps.open(terms, rules, at=NOW)
    return steps


def said(*verdicts: Verdict, metric: str = "token_f1") -> list[Comparison]:
    """Return a comparison for each verdict, of metrics that are named after their place."""
    return [
        Comparison(metric=metric if not place else f"{metric}{place}", verdict=verdict)
        for place, verdict in enumerate(verdicts)
    ]


def golden(count: int, effect: float, draw: np.random.Generator, metric: str = "token_f1") -> Scores:
    """Return scores of pairs that correlate with 0.7 and have a standard deviation of 0.35."""
    base = draw.normal(0.6, 0.35, count)
    own = draw.normal(0.6, 0.35, count)
    candidate = 0.7 * base + np.sqrt(1 - 0.7**2) * (own - 0.6) + 0.3 * 0.6 + effect
    return paired(base, candidate, metric)


def paired(
    base: Sequence[float], candidate: Sequence[float], metric: str = "token_f1", **more: Any
) -> Scores:
    return Scores(
        metric=metric,
        paired=more.pop("is_paired", True),
        base={str(number): float(score) for number, score in enumerate(base)},
        candidate={str(number): float(score) for number, score in enumerate(candidate)},
        **more,
    )
