"""Who gets which version: a hash decides, so the answer is the same wherever and whenever it is asked."""

from __future__ import annotations

import hashlib
import math
from typing import Literal, get_args

from airflow_provider_llmbatch.engine.identity import canonical_json
from airflow_provider_llmbatch.engine.items import Item, Json
from airflow_provider_llmbatch.errors import ConfigurationError

Arm = Literal["base", "candidate"]

ARMS: tuple[Arm, ...] = get_args(Arm)
#: Below this probability a split is no accident: with a round each hour, one false alarm in six weeks.
MISMATCH_P = 0.001
#: Steps of the hash.
_STEPS = 2**64


def place_of(rollout: str, unit: str) -> float:
    """
    Return where a unit stands in a rollout, from 0 to below 1: evenly, and unlike in any other rollout.

    :param rollout: the name that no other rollout has.
    """
    digest = hashlib.sha256(canonical_json([rollout, unit]).encode("ascii")).digest()
    return int.from_bytes(digest[:8], "big") / _STEPS


def arm_of(rollout: str, unit: str, rate: float) -> Arm:
    """
    Return the arm of a unit.

    Whoever has the candidate at some rate has it at every higher one.

    :param rate: share of the units that get the candidate, from 0 to 1.
    """
    return "candidate" if place_of(rollout, unit) < rate else "base"


def check_unit(unit: str) -> None:
    """
    Refuse what cannot be a unit.

    :raises ConfigurationError: for anything but ``item``, ``group``, ``vars.<name>`` and ``metadata.<name>``.
    """
    head, _, rest = unit.partition(".")
    if unit not in ("item", "group") and not (head in ("vars", "metadata") and rest):
        raise ConfigurationError(
            f"unit is {unit!r}; what is assigned together is 'item', 'group', 'vars.<name>' or "
            "'metadata.<name>'."
        )


def unit_of(item: Item, unit: str) -> str:
    """
    Return what an item is assigned with: itself, its chain, or whoever a field names.

    An item without that field is a unit of its own.

    :param unit: see :func:`check_unit`.
    """
    value: Json = None
    if unit == "group":
        value = item.group
    elif unit != "item":
        head, _, path = unit.partition(".")
        value = item.vars if head == "vars" else item.metadata
        for name in path.split("."):
            value = value.get(name) if hasattr(value, "get") else None
    # What has no such field must not become one unit, and no field's value may be taken for an id.
    return f"item:{item.id}" if value is None else f"{unit}:{canonical_json(value)}"


def mismatch_p(base: int, candidate: int, expected: float) -> float:
    """
    Return how probable so uneven a split is: Pearson's chi-square test with one degree of freedom.

    :param base: units that had the base, and ``candidate`` likewise.
    :param expected: units that should have had the candidate: the sum of the rates that each had.
    """
    total = base + candidate
    if not 0.0 < expected < total:
        impossible = candidate != round(expected)
        return 0.0 if impossible else 1.0
    statistic = (candidate - expected) ** 2 * (1 / expected + 1 / (total - expected))
    return math.erfc(math.sqrt(statistic / 2))
