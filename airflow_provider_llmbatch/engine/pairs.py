"""Join scores and results: the pairs of the golden set that base and candidate have answered most unlike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_provider_llmbatch.engine.items import Result
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.engine.rollout.sheet import Place, Sheet
from airflow_provider_llmbatch.engine.rollout.variant import ARMS, Arm
from airflow_provider_llmbatch.errors import InputError

#: Which pairs: those where the candidate is worse, better, or either.
Side = Literal["worse", "better", "either"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An item of the golden set with its grades and answers."""

    id: str
    #: grades, in the metric's own unit
    base: float
    candidate: float
    #: how much the candidate is better; below 0 when it is worse
    effect: float
    #: the answers by arm; one that is no longer there is left out
    results: Mapping[Arm, Result]


def most_unlike(
    sheet: Sheet,
    scores: Scores,
    side: Side,
    *,
    start: int,
    stop: int,
    graded_by: float,
    open_folder: Callable[[str], Folder],
) -> tuple[int, list[Pair]]:
    """
    Return how many pairs differ, and some of them with their answers, those that differ most first.

    :param scores: one of the paired metrics of the sheet.
    :param start: the first of them, and ``stop`` the one after the last.
    :param graded_by: Unix seconds by which all was graded; what was asked later was not.
    :raises StoreError: when answers that are there cannot be read.
    """
    sign = -1.0 if scores.lower_is_better else 1.0
    effects = {
        unit: sign * (scores.candidate[unit] - base)
        for unit, base in scores.base.items()
        if unit in scores.candidate
    }
    differing = sorted(
        (unit for unit, effect in effects.items() if _is_on(side, effect)),
        key=lambda unit: (-abs(effects[unit]), unit),
    )
    page = differing[start:stop]
    found = {
        arm: {
            result.id: result
            for result in _answers(sheet.golden.get(arm, ()), arm, set(page), open_folder)
            if result.started_at <= graded_by
        }
        for arm in ARMS
    }
    pairs = [
        Pair(
            id=unit,
            base=scores.base[unit],
            candidate=scores.candidate[unit],
            effect=effects[unit],
            results={arm: found[arm][unit] for arm in ARMS if unit in found[arm]},
        )
        for unit in page
    ]
    return len(differing), pairs


def _is_on(side: Side, effect: float) -> bool:
    return effect != 0 and side in ("either", "better" if effect > 0 else "worse")


def _answers(
    places: Iterable[Place], arm: Arm, wanted: set[str], open_folder: Callable[[str], Folder]
) -> Iterator[Result]:
    """Yield the answers of an arm; results that were deleted are none."""
    for place in places if wanted else ():
        with contextlib.suppress(InputError):
            for result in results(open_folder(place.result_path), chunks=[place.chunk]):
                if result.id in wanted and result.variant in (arm, None):
                    yield result
