"""What a row says by itself: whether it is valid, refused or cut off, what it cost, how long it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.rollout.grader import UNUSABLE, Answer, Grades

#: What a version cannot serve at all: its request is too long, impossible or refused as it stands.
_UNSERVED = frozenset({Outcome.TOO_LONG, Outcome.UNRENDERED, Outcome.BAD_REQUEST})
_REFUSED = frozenset({Outcome.REFUSED, Outcome.CONTENT_FILTERED})


def _share(answers: Sequence[Answer], hits: frozenset[Outcome], others: frozenset[Outcome]) -> Grades:
    """Return 1 for some outcomes, 0 for others, and nothing for the rest."""
    outcomes = [answer.result.outcome for answer in answers]
    return Grades(scores=[1.0 if one in hits else 0.0 if one in others else None for one in outcomes])


@dataclass(frozen=True)
class Validity:
    """Whether the reply can be used; a version whose request cannot be made or served has failed."""

    name: ClassVar[str] = "validity"
    lower_is_better: ClassVar[bool] = False

    def grade(self, answers: Sequence[Answer]) -> Grades:
        """Return 1 or 0, and nothing for calls that failed."""
        return _share(answers, frozenset({Outcome.OK}), UNUSABLE | _UNSERVED)


@dataclass(frozen=True)
class Refusal:
    """Whether the model has declined, or a filter has stopped it."""

    name: ClassVar[str] = "refusal"
    lower_is_better: ClassVar[bool] = True

    def grade(self, answers: Sequence[Answer]) -> Grades:
        """Return 1 or 0, and nothing for calls that failed."""
        return _share(answers, _REFUSED, (UNUSABLE | {Outcome.OK}) - _REFUSED)


@dataclass(frozen=True)
class Truncation:
    """Whether the reply was cut off."""

    name: ClassVar[str] = "truncation"
    lower_is_better: ClassVar[bool] = True

    def grade(self, answers: Sequence[Answer]) -> Grades:
        """Return 1 or 0, and nothing for calls that failed."""
        cut = frozenset({Outcome.TRUNCATED})
        return _share(answers, cut, (UNUSABLE | {Outcome.OK}) - cut)


@dataclass(frozen=True)
class CostUsd:
    """US dollars of an answer, its repairs included."""

    name: ClassVar[str] = "cost_usd"
    lower_is_better: ClassVar[bool] = True

    def grade(self, answers: Sequence[Answer]) -> Grades:
        """Return what each answer has cost; nothing where that is not known, or it was had before."""
        scores = [
            float(each.result.cost.usd) if _was_asked(each) and not each.result.cost.unpriced else None
            for each in answers
        ]
        unpriced = sum(each.result.cost.unpriced for each in answers)
        return Grades(scores=scores, note=f"{unpriced} answers are unpriced" if unpriced else "")


@dataclass(frozen=True)
class LatencyMs:
    """Milliseconds of the last call, without waiting for limits."""

    name: ClassVar[str] = "latency_ms"
    lower_is_better: ClassVar[bool] = True

    def grade(self, answers: Sequence[Answer]) -> Grades:
        """Return how long each call took; nothing where the answer was had before."""
        return Grades(scores=[each.result.call_ms if _was_asked(each) else None for each in answers])


def _was_asked(answer: Answer) -> bool:
    return answer.is_answered and answer.result.saved_usd is None
