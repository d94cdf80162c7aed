"""How the scores of a metric are spread, in both arms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.rollout.scores import Scores

#: Bins of equal width.
BINS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Units by the score that they have, counted in the same bins for both arms."""

    #: ends of the bins, rising: one more than there are bins; a score at an end counts above it, the last one
    #: below
    edges: tuple[float, ...]
    base: tuple[int, ...]
    candidate: tuple[int, ...]


def distribution(scores: Scores, bins: int = BINS) -> Distribution | None:
    """
    Count the scores of a metric; None when there are none.

    The bins go from 0 to 1 where all scores do, so that rounds look alike; else from the lowest to the
    highest.

    :param bins: how many; one is enough where all scores are the same.
    """
    every = [*scores.base.values(), *scores.candidate.values()]
    if not every:
        return None
    low, high = min(every), max(every)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    width = (high - low) / bins
    if width == 0 or not math.isfinite(width):
        return Distribution(edges=(low, high), base=(len(scores.base),), candidate=(len(scores.candidate),))

    def counted(values: Iterable[float]) -> tuple[int, ...]:
        counts = [0] * bins
        for value in values:
            counts[min(bins - 1, int((value - low) / width))] += 1
        return tuple(counts)

    edges = (*(low + width * number for number in range(bins)), high)
    return Distribution(
        edges=edges, base=counted(scores.base.values()), candidate=counted(scores.candidate.values())
    )
