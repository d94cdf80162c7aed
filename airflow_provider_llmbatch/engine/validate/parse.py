"""
Strict JSON: what the standard allows, and nothing that two readers could read differently.

Beyond the grammar, duplicate keys, numbers without a finite value, half characters (lone surrogates) and
nesting deeper than :data:`MAX_DEPTH` are invalid: the store behind the results could not hold them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import NoReturn

from airflow_provider_llmbatch.engine.items import Json

#: Deepest nesting of a reply; the parsers and stores behind this one give up from about 200.
MAX_DEPTH = 128

_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


class NotJson(ValueError):
    """The text is not strict JSON; the message says why in a few words."""


def parse_strict(text: str) -> Json:
    """
    Return the value of a text that is strict JSON from its first to its last character.

    :raises NotJson: for anything else.
    """
    value, end = parse_from(text, _first(text))
    if text[end:].strip(" \t\n\r"):
        raise NotJson(f"more text follows the JSON, from character {end}")
    return value


def parse_from(text: str, start: int) -> tuple[Json, int]:
    """
    Return the JSON value that begins at ``start``, and where it ends.

    :raises NotJson: when no strict JSON value begins there.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" at")
        raise NotJson(f"{reason} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise NotJson(f"nested deeper than {MAX_DEPTH} levels") from None
    except NotJson:
        raise
    except ValueError:
        raise NotJson("an integer has more digits than can be read") from None
    source = text[start:end]
    if source.count("{") + source.count("[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise NotJson(f"nested deeper than {MAX_DEPTH} levels")
    _refuse_half_characters(source, value)
    return value, end


def _first(text: str) -> int:
    return len(text) - len(text.lstrip(" \t\n\r"))


def _without_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotJson(f"the key {twice[:40]!r} occurs twice in one object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise NotJson(f"the number {text[:40]} is too large to be finite")
    return number


def _refuse_constant(text: str) -> NoReturn:
    raise NotJson(f"{text} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_duplicates, parse_float=_finite, parse_constant=_refuse_constant
)


def _depth(value: Json) -> int:
    depth, level = 0, [value]
    while level := [child for parent in level for child in _children(parent)]:
        depth += 1
    return depth


def _children(value: Json) -> Iterator[Json]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _refuse_half_characters(source: str, value: Json) -> None:
    try:
        source.encode()
        if _HALF_CHARACTER.search(source):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NotJson("half of a character (a lone surrogate) stands in a string") from None
