"""Facts, such as checked output of a language model: each leaf of the JSON is a bucket and a weight."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airflow_provider_llmbatch.engine.fusion.errors import FusionInputError

#: Part of each cache key; rises whenever the same facts would be read into other numbers.
VERSION = 1


def read_facts(given: Mapping[str, Any], buckets: int) -> NDArray[np.float32]:
    """
    Return facts as (n, 2): a bucket for what is said, and its weight.

    A number weighs in the bucket of its place; a word, yes or no has a bucket with its place and a weight
    of 1. What is null says nothing.

    :param given: ``{"value": …}``, or ``{"value": {"path": …}}`` for a JSON file.
    :raises FusionInputError: ``facts.invalid``, ``facts.empty``.
    """
    value = _from_file(Path(given["path"])) if "path" in given else given["value"]
    if isinstance(value, str):
        value = _parsed(value)
    if not isinstance(value, Mapping):
        raise FusionInputError("facts.invalid", "facts")
    leaves = sorted((_bucket(place, buckets), weight) for place, weight in _leaves(value, ""))
    if not leaves:
        raise FusionInputError("facts.empty", "facts")
    return np.asarray(leaves, np.float32)


def _from_file(path: Path) -> Any:
    try:
        return _parsed(path.read_bytes())
    except OSError as error:
        raise FusionInputError("facts.invalid", "facts") from error


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FusionInputError("facts.invalid", "facts") from error


def _leaves(value: Any, place: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, f"{place}[]")
    elif isinstance(value, bool | str):
        yield f"{place}={value}", 1.0
    elif value is not None:
        # A logarithm that keeps the sign: counts and lengths differ by orders of magnitude.
        if not math.isfinite(value):
            raise FusionInputError("facts.invalid", "facts")
        yield place, math.copysign(math.log1p(abs(float(value))), value)


def _bucket(place: str, buckets: int) -> int:
    return int.from_bytes(hashlib.sha256(place.encode()).digest()[:8], "big") % buckets
