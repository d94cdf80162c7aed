"""How many output tokens to reserve, and how far the count is off. Pure arithmetic."""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.items import Json

#: Output tokens reserved for a request without a cap, until replies have been seen.
DEFAULT_OUTPUT_TOKENS = 512

#: Replies that are remembered, and how many of them it takes to believe them.
_RECENT = 256
_ENOUGH = 20
#: The reserve covers this share of recent replies, and a margin on top.
_QUANTILE = 0.95
_MARGIN = 1.2
#: Weight of the newest request in the drift.
_DRIFT_WEIGHT = 0.05

#: Parameters that cap the output, the one that services prefer first.
CAPS = ("max_completion_tokens", "max_tokens")


def output_cap(params: Mapping[str, Json]) -> int | None:
    """Return the output cap that the parameters set, or None."""
    for name in CAPS:
        value = params.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def output_tokens(params: Mapping[str, Json], *, learnt: int, room: int | None) -> int:
    """
    Return the output tokens to reserve for a request.

    A cap in the parameters is taken at its word. A learnt number gives way to the room that the limit and
    the model's window leave, so that it alone never keeps a request from being sent.

    :param room: tokens left beside the prompt; None when nothing limits them.
    """
    cap = output_cap(params)
    if cap is not None:
        return cap
    return learnt if room is None else max(1, min(learnt, room))


class LearntReserve:
    """
    Follows the lengths of recent replies.

    :param default: what to reserve until enough replies have been seen.
    """

    def __init__(self, default: int = DEFAULT_OUTPUT_TOKENS) -> None:
        self._default = default
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []

    def observe(self, completion_tokens: int) -> None:
        """Take the length of a reply into account; reasoning is part of it."""
        if len(self._recent) == _RECENT:
            oldest = self._recent.popleft()
            del self._sorted[bisect.bisect_left(self._sorted, oldest)]
        self._recent.append(completion_tokens)
        bisect.insort(self._sorted, completion_tokens)

    def __call__(self) -> int:
        """Return the output tokens to reserve for the next request."""
        if not self._sorted:
            return self._default
        if len(self._sorted) < _ENOUGH:
            return max(self._default, self._sorted[-1])
        covering = self._sorted[math.ceil(_QUANTILE * len(self._sorted)) - 1]
        return max(1, math.ceil(covering * _MARGIN))


@dataclass(slots=True)
class Drift:
    """What the service counts over what we count, as a moving average: 1.0 when they agree."""

    ratio: float = 1.0

    def observe(self, *, counted: int, used: int) -> None:
        """Take one answered request into account."""
        if counted > 0 and used > 0:
            self.ratio += _DRIFT_WEIGHT * (used / counted - self.ratio)
