"""
Strings that match a regular expression.

A walk over the tree of Python's own parser. Look-arounds, word boundaries and back-references are
ignored, so whoever needs to be sure checks the result.
"""

from __future__ import annotations

import importlib
import string
from collections.abc import Callable, Iterable
from functools import lru_cache
from random import Random
from typing import Any

#: Unbounded repeats add at most this many to their minimum.
_REPEATS_MORE = 6
_PLAIN = string.ascii_letters + string.digits
_PRINTABLE = _PLAIN + string.punctuation + " "
_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": str.isdigit,
    "CATEGORY_NOT_DIGIT": lambda char: not char.isdigit(),
    "CATEGORY_WORD": lambda char: char.isalnum() or char == "_",
    "CATEGORY_NOT_WORD": lambda char: not (char.isalnum() or char == "_"),
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_NOT_SPACE": lambda char: not char.isspace(),
}


def matching(rng: Random, pattern: str) -> str:
    """
    Return a string that ``pattern`` matches, as far as this module goes.

    :raises re.error: when the pattern is no regular expression.
    """
    return _sequence(rng, _parsed(pattern))


@lru_cache(maxsize=256)
def _parsed(pattern: str) -> Any:
    # The parser of ``re`` has no public name; it knows the syntax better than a second one would.
    return importlib.import_module("re._parser").parse(pattern)


def _sequence(rng: Random, nodes: Iterable[tuple[Any, Any]]) -> str:
    return "".join(_node(rng, operator.name, value) for operator, value in nodes)


def _node(rng: Random, operator: str, value: Any) -> str:
    make = _NODES.get(operator)
    return make(rng, value) if make else ""


def _repeat(rng: Random, value: Any) -> str:
    least, most, nodes = value
    most = min(int(most), least + _REPEATS_MORE)
    return "".join(_sequence(rng, nodes) for _ in range(rng.randint(least, most)))


def _one_of(rng: Random, members: list[tuple[Any, Any]]) -> str:
    negated = members[0][0].name == "NEGATE"
    tests = members[1:] if negated else members
    allowed = [char for char in _PRINTABLE if _is_in(char, tests) != negated]
    readable = [char for char in allowed if char in _PLAIN]
    if allowed:
        return rng.choice(readable or allowed)
    # A set outside of ASCII: its first literal or the start of its first range.
    operator, value = tests[0]
    return chr(value[0] if operator.name == "RANGE" else value)


def _is_in(char: str, members: list[tuple[Any, Any]]) -> bool:
    return any(_member(char, operator.name, value) for operator, value in members)


def _member(char: str, operator: str, value: Any) -> bool:
    if operator == "LITERAL":
        return ord(char) == int(value)
    if operator == "RANGE":
        return int(value[0]) <= ord(char) <= int(value[1])
    return operator == "CATEGORY" and _CATEGORIES[value.name](char)


def _other_than(rng: Random, value: int) -> str:
    return rng.choice([char for char in _PLAIN if ord(char) != value])


_NODES: dict[str, Callable[[Random, Any], str]] = {
    "LITERAL": lambda rng, value: chr(value),
    "NOT_LITERAL": _other_than,
    "ANY": lambda rng, value: rng.choice(string.ascii_lowercase),
    "IN": _one_of,
    "BRANCH": lambda rng, value: _sequence(rng, rng.choice(value[1])),
    "SUBPATTERN": lambda rng, value: _sequence(rng, value[-1]),
    "ATOMIC_GROUP": lambda rng, value: _sequence(rng, value),
    "MAX_REPEAT": _repeat,
    "MIN_REPEAT": _repeat,
    "POSSESSIVE_REPEAT": _repeat,
}
