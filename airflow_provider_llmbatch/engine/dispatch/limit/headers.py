"""What the ``x-ratelimit-*`` headers of a reply say about the limits of requests and tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Literal

from airflow_provider_llmbatch.engine.state.protocols import Told

#: Digits of a number that is believed.
_AMOUNT = re.compile(r"\d{1,15}")
_UNITS: tuple[Literal["requests", "tokens"], ...] = ("requests", "tokens")


def read(headers: Mapping[str, str]) -> tuple[Told, ...]:
    """
    Read what a service says; a header that is no number, or a limit of nothing, says nothing.

    :param headers: with lower-case names.
    """
    return tuple(
        Told(unit=unit, limit=limit or None, remaining=remaining)
        for unit in _UNITS
        for limit, remaining in [(_amount(headers, "limit", unit), _amount(headers, "remaining", unit))]
        if limit or remaining is not None
    )


def aged(told: Told, age_s: float, capacity: int, window_s: float) -> Told:
    """
    Return what is left at most, some time after the service said it.

    :param age_s: seconds since the request left that brought the answer; the service counted after that.
    :param capacity: what the window holds as configured.
    """
    if told.remaining is None:
        return told
    limit = told.limit or capacity
    freed = math.ceil(limit * max(0.0, age_s) / window_s)
    return Told(unit=told.unit, limit=told.limit, remaining=min(limit, told.remaining + freed))


def _amount(headers: Mapping[str, str], what: str, unit: str) -> int | None:
    text = headers.get(f"x-ratelimit-{what}-{unit}", "").strip()
    return int(text) if _AMOUNT.fullmatch(text) else None
