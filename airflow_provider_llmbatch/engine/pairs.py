"""Join scores and results: the pairs of the golden set that base and candidate have answered most unlike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from airflow_provider_llmbatch.engine.items import Item, Result
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.engine.rollout.sheet import Place, Sheet
from airflow_provider_llmbatch.engine.rollout.variant import ARMS, Arm
from airflow_provider_llmbatch.engine.source import Source
from airflow_provider_llmbatch.errors import InputError

#: Which pairs: those where the candidate is worse, better, or either.
Side = Literal["worse", "better", "either"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An item of the golden set with its grades and answers."""

    id: str
    #: as the golden set has it now; None where it has it no more
    item: Item | None
    #: grades, in the metric's own unit
    base: float
    candidate: float
    #: how much the candidate is better; below 0 when it is worse
    effect: float
    #: the answers by arm; one that is no longer there is left out
    results: Mapping[Arm, Result]


def most_unlike(scores: Scores, side: Side) -> list[str]:
    """Return the items that both arms have a score of, and not the same, those that differ most first."""
    effects = {unit: _effect(scores, unit) for unit in scores.base if unit in scores.candidate}
    return sorted(
        (unit for unit, effect in effects.items() if _is_on(side, effect)),
        key=lambda unit: (-abs(effects[unit]), unit),
    )


def pairs_of(
    sheet: Sheet,
    scores: Scores,
    units: Sequence[str],
    items: Mapping[str, Item],
    *,
    graded_by: float,
    open_folder: Callable[[str], Folder],
) -> list[Pair]:
    """
    Return pairs with their answers.

    :param scores: one of the paired metrics of the sheet.
    :param units: ids of items that both arms have a score of.
    :param items: what is known of them.
    :param graded_by: Unix seconds by which all was graded; what was asked later was not.
    :raises StoreError: when answers that are there cannot be read.
    """
    wanted = set(units)
    found = {
        arm: {
            result.id: result
            for result in _answers(sheet.golden.get(arm, ()), arm, wanted, open_folder)
            if result.started_at <= graded_by
        }
        for arm in ARMS
    }
    return [
        Pair(
            id=unit,
            item=items.get(unit),
            base=scores.base[unit],
            candidate=scores.candidate[unit],
            effect=_effect(scores, unit),
            results={arm: found[arm][unit] for arm in ARMS if unit in found[arm]},
        )
        for unit in units
    ]


def items_of(source: Source, units: Sequence[str]) -> dict[str, Item]:
    """
    Read items by their ids.

    :raises InputError: when the source is not there, or none.
    :raises ConfigurationError: when it cannot be opened here.
    :raises StoreError: when it cannot be read now.
    """
    wanted = set(units)
    found = {}
    for row in source.rows():
        if isinstance(row.item, Item) and row.item.id in wanted:
            found[row.item.id] = row.item
    return found


def _effect(scores: Scores, unit: str) -> float:
    effect = scores.candidate[unit] - scores.base[unit]
    return -effect if scores.lower_is_better else effect


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
