"""Structured outputs against references, field by field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from airflow_provider_llmbatch.engine.identity import canonical_json
from airflow_provider_llmbatch.engine.items import Json
from airflow_provider_llmbatch.engine.rollout.grader import Answer, Grades, against_references


def leaves(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """
    Yield what an object holds, as a path and a value; elements of a list share a path, whatever their order.

    An empty object or list is a value; a field that is null counts as one that is not there.
    """
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from leaves(inner, f"{path}/{name}")
    elif isinstance(value, list) and value:
        for inner in value:
            yield from leaves(inner, f"{path}/[]")
    elif value is not None:
        yield path, _plain(value)


def _plain(value: Json) -> str:
    if isinstance(value, str):
        return f'"{" ".join(value.split())}"'
    # 1 and 1.0 are one number, and neither is true
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return canonical_json(value)


def f1(output: Json, reference: Json) -> float:
    """Return the harmonic mean of precision and recall of the fields; of two empty objects 1."""
    ours, theirs = Counter(leaves(output)), Counter(leaves(reference))
    if not ours and not theirs:
        return 1.0
    common = (ours & theirs).total()
    return 2 * common / (ours.total() + theirs.total())


@dataclass(frozen=True)
class FieldF1:
    """F1 of the fields of an output that is an object."""

    name: ClassVar[str] = "field_f1"
    lower_is_better: ClassVar[bool] = False

    def grade(self, answers: Sequence[Answer]) -> Grades:
        """Return a score from 0 to 1 for each answer that has a reference."""
        return Grades(scores=against_references(answers, f1))
