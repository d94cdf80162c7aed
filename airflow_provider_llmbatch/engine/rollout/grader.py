"""
Graders: each turns answers into scores of one metric, or says that there is none.

A call that failed has no score; it is missing and not wrong. A reply that cannot be used (refused, cut off,
invalid) is an answer, and a bad one: where there is something to compare with, it scores 0.
"""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_provider_llmbatch.engine.identity import canonical_json
from airflow_provider_llmbatch.engine.items import Json, Outcome, Result
from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.errors import ConfigurationError, LLMBatchError

#: What a model has said that cannot be used.
UNUSABLE = frozenset({Outcome.INVALID_OUTPUT, Outcome.TRUNCATED, Outcome.REFUSED, Outcome.CONTENT_FILTERED})
#: Names of the graders of this package, and where they are.
_OURS: Mapping[str, str] = {
    "exact_match": "texts:ExactMatch",
    "token_f1": "texts:TokenF1",
    "bleu": "texts:Bleu",
    "bertscore": "bertscore:BertScore",
    "field_f1": "fields:FieldF1",
    "validity": "facts:Validity",
    "refusal": "facts:Refusal",
    "truncation": "facts:Truncation",
    "cost_usd": "facts:CostUsd",
    "latency_ms": "facts:LatencyMs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of an item in one arm."""

    result: Result
    #: what the item was assigned with; of the golden set its id
    unit: str
    #: the right answer; None when there is none
    reference: Json = None

    @property
    def is_answered(self) -> bool:
        """Whether the model has said something, of use or not."""
        return self.result.outcome is Outcome.OK or self.result.outcome in UNUSABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Grades:
    """What a grader says."""

    #: one for each answer; None where there is none
    scores: Sequence[float | None]
    #: what a person should know, such as a tokenizer
    note: str = ""


class Grader(Protocol):
    """One metric. Whoever writes another gives its dotted path as ``package.module:Class``."""

    @property
    def name(self) -> str:
        """Name of the metric."""

    @property
    def lower_is_better(self) -> bool:
        """Whether less is better."""

    def grade(self, answers: Sequence[Answer]) -> Grades:
        """
        Score answers, each for itself: whatever stands beside it changes nothing.

        What is raised makes the metric ``not_run``.
        """


def grader_of(spec: str | Mapping[str, Any]) -> Grader:
    """
    Return a grader by its name or path.

    :param spec: the name of one of ours, ``package.module:Class`` of another, or a mapping with that as
        ``grader`` and whatever else its class takes.
    :raises ConfigurationError: when there is no such grader, or it does not take that.
    """
    given = {"grader": spec} if isinstance(spec, str) else dict(spec)
    name = str(given.pop("grader", ""))
    path = f"{__package__}.{_OURS[name]}" if name in _OURS else name
    try:
        if ":" not in path:
            raise ValueError("it is none of ours, and no dotted path")
        kind = pkgutil.resolve_name(path)
        grader = kind(**given)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        # One of ours that cannot be imported lacks a library; whoever asks for it knows which extra has it.
        if isinstance(error, LLMBatchError) or (isinstance(error, ImportError) and name in _OURS):
            raise
        raise ConfigurationError(
            f"The grader {name!r} cannot be made: {error}. Take one of {', '.join(_OURS)}, or the dotted "
            "path of one of yours as 'package.module:Class', with what it takes beside 'grader'."
        ) from error
    for part in ("name", "lower_is_better", "grade"):
        if not hasattr(grader, part):
            raise ConfigurationError(f"{path} is no grader: it has no {part!r}; see docs/rollout.md.")
    found: Grader = grader
    return found


def scored(grader: Grader, base: Sequence[Answer], candidate: Sequence[Answer], *, paired: bool) -> Scores:
    """
    Grade both arms by one metric.

    :param paired: whether both have been asked the same items; an item that one lacks is missing there.
    """
    try:
        graded = [grader.grade(arm) for arm in (base, candidate)]
        for found, arm in zip(graded, (base, candidate), strict=True):
            if len(found.scores) != len(arm):
                raise ValueError(f"{len(arm)} answers got {len(found.scores)} scores")
            if not all(score is None or math.isfinite(score) for score in found.scores):
                raise ValueError("a score is no finite number")
    # a grader may be anybody's, and one that fails must not pass for one that found nothing
    except Exception as error:
        return Scores(
            metric=grader.name,
            paired=paired,
            base={},
            candidate={},
            missing_base=len(base),
            missing_candidate=len(candidate),
            lower_is_better=grader.lower_is_better,
            failure=f"{type(error).__name__}: {error}"[:500],
        )
    first, second = (
        _by_unit(arm, found.scores) for arm, found in zip((base, candidate), graded, strict=True)
    )
    if paired:
        units = {answer.unit for answer in (*base, *candidate)}
        missing = (len(units - first.keys()), len(units - second.keys()))
    else:
        missing = (_missing(graded[0]), _missing(graded[1]))
    return Scores(
        metric=grader.name,
        paired=paired,
        base=first,
        candidate=second,
        missing_base=missing[0],
        missing_candidate=missing[1],
        lower_is_better=grader.lower_is_better,
        note="; ".join(dict.fromkeys(found.note for found in graded if found.note)),
    )


def _missing(found: Grades) -> int:
    return sum(score is None for score in found.scores)


def _by_unit(answers: Sequence[Answer], scores: Iterable[float | None]) -> dict[str, float]:
    """Return the mean of each unit: its items were assigned together, so they do not count apart."""
    sums: dict[str, tuple[float, int]] = {}
    for answer, score in zip(answers, scores, strict=True):
        if score is not None:
            total, count = sums.get(answer.unit, (0.0, 0))
            sums[answer.unit] = (total + float(score), count + 1)
    return {unit: total / count for unit, (total, count) in sums.items()}


def against_references(
    answers: Sequence[Answer], score: Callable[[Json, Json], float | None]
) -> list[float | None]:
    """
    Score answers that have a reference: usable ones by ``score``, others with 0.

    :param score: takes an output and a reference; None where it is not defined for them.
    """
    found: list[float | None] = []
    for answer in answers:
        if answer.reference is None or not answer.is_answered:
            found.append(None)
        elif answer.result.outcome is Outcome.OK:
            found.append(score(answer.result.output, answer.reference))
        else:
            found.append(0.0)
    return found


def text_of(value: Json) -> str:
    """Return a value as a text: numbers as they are written, objects as JSON."""
    return value if isinstance(value, str) else canonical_json(value)


def texts_of(reference: Json) -> list[str]:
    """Return the texts of a reference; a list is several right answers."""
    return [text_of(one) for one in reference] if isinstance(reference, list) else [text_of(reference)]


def picked(value: Json, field: str) -> Json:
    """Return a field of an object by its dotted path; None when it is not there; all of it without a path."""
    for name in field.split(".") if field else ():
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
