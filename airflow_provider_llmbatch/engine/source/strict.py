"""JSON read strictly: what two readers could understand differently is refused."""

from __future__ import annotations

import json
import math
from typing import NoReturn

from airflow_provider_llmbatch.engine.items import Json


class RowProblem(ValueError):
    """What is wrong with a row, in words; it never leaves the source."""


def read_json(text: str) -> Json:
    """
    Read one JSON value without repeated keys and non-finite numbers.

    :raises RowProblem: naming what is wrong.
    """
    try:
        return _DECODER.decode(text)
    except RowProblem:
        raise
    except json.JSONDecodeError as error:
        raise RowProblem(f"is no valid JSON: {error.msg} at column {error.pos + 1}") from error
    except RecursionError as error:
        raise RowProblem("is nested too deeply") from error
    except ValueError as error:
        raise RowProblem(f"holds a number that cannot be read: {error}") from error


def refuse_half_characters(value: Json) -> None:
    """
    Refuse text with a lone surrogate: no UTF-8 can carry it to the service or into a result.

    :raises RowProblem: when there is one.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RowProblem("holds half of a surrogate pair, which is no character; mend that text") from error


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        # set.add returns None, so the first key that is already there is the repeated one
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise RowProblem(f"has the key {repeated!r} twice in one object; keep one of them")
    return values


def _constant(name: str) -> NoReturn:
    raise RowProblem(f"holds {name}, which is no JSON number; use null or leave the key out")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise RowProblem(f"holds the number {text[:40]}, which is too large; use null or leave the key out")
    return number


# made once: json.loads with hooks would build a new decoder for every row
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite)
