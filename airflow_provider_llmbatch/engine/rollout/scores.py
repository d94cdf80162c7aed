"""The scores of one metric, as graders give them and comparisons take them; no library is needed for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The scores of one metric in one round, by unit; a unit of several items has their mean."""

    metric: str
    #: whether both arms have answered the same items; units are items then
    paired: bool
    base: Mapping[str, float]
    candidate: Mapping[str, float]
    #: answers without a score
    missing_base: int = 0
    missing_candidate: int = 0
    lower_is_better: bool = False
    #: why it could not be graded; empty when it was
    failure: str = ""
    note: str = ""
