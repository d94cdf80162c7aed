"""Answers for the tests of graders, and graders as users write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_llmbatch.engine.items import Outcome, Result
from airflow_provider_llmbatch.engine.rollout.grader import Answer, Grades


def answer(output: Any, reference: Any = None, outcome: Outcome = Outcome.OK, **fields: Any) -> Answer:
    unit = fields.pop("unit", fields.get("id", "0"))
    result = Result(**{"index": 0, "id": unit, "outcome": outcome, "output": output, **fields})
    return Answer(result=result, unit=unit, reference=reference)


def score(grader: Any, output: Any, reference: Any, **fields: Any) -> float | None:
    (found,) = grader.grade([answer(output, reference, **fields)]).scores
    return found


@dataclass
class Length:
    """A user's own metric."""

    most: int = 10
    name: str = "length"
    lower_is_better: bool = True

    def grade(self, answers: Sequence[Answer]) -> Grades:
        return Grades(scores=[min(self.most, len(each.result.output)) for each in answers])


@dataclass
class Broken(Length):
    name: str = "broken"

    def grade(self, answers: Sequence[Answer]) -> Grades:
        raise OSError("no such model")


@dataclass
class Endless(Length):
    name: str = "endless"

    def grade(self, answers: Sequence[Answer]) -> Grades:
        return Grades(scores=[float("nan")] * len(answers))


@dataclass
class Forgetful(Length):
    name: str = "forgetful"

    def grade(self, answers: Sequence[Answer]) -> Grades:
        return Grades(scores=[])
