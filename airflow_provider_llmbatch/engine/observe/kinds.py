"""
Failures told apart by kind: how many of each, the first one as an example, why, and what helps.

However many fail and whatever codes a service makes up, there is a bounded number of kinds, each with one
short line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.observe.causes import likely_cause

#: kinds that are told apart; codes are the service's, and could be any number
KINDS = 30
#: what all further kinds are called
OTHERS = "of other kinds"
#: longest example of a failure, in characters
EXAMPLE_LENGTH = 200


@dataclass(slots=True)
class Kind:
    """Failures of one kind."""

    #: ``http 429 rate_limit_exceeded``
    name: str
    #: the first message of its kind, with the likely cause and the remedy
    example: str
    count: int = 1


class FailureKinds:
    """Counts failures by kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}

    @property
    def total(self) -> int:
        """How many failures there were."""
        return sum(kind.count for kind in self._kinds.values())

    def add(self, kind: str, status: int | None, code: str | None, message: str) -> Kind | None:
        """Count a failure; returns its kind if it is the first of it."""
        name = one_line(" ".join(str(part) for part in (kind, status, code) if part is not None))
        if name not in self._kinds and len(self._kinds) >= KINDS:
            name = OTHERS
        if name in self._kinds:
            self._kinds[name].count += 1
            return None
        cause = likely_cause(kind, status, code)
        found = Kind(name, one_line(message) + (f" — {cause}" if cause else ""))
        self._kinds[name] = found
        return found

    def by_count(self) -> Sequence[Kind]:
        """Return all kinds, the commonest first."""
        return sorted(self._kinds.values(), key=lambda kind: -kind.count)

    def commonest(self) -> str:
        """Return the commonest kind in one line, ``""`` when nothing failed."""
        for kind in self.by_count()[:1]:
            return f"{kind.count} x {kind.name}: {kind.example}"
        return ""


def one_line(text: str) -> str:
    """Return a text cut to one line: escape codes and breaks in it must not forge lines of a log."""
    shown = "".join(char if char.isprintable() else " " for char in text[: 2 * EXAMPLE_LENGTH])
    shown = " ".join(shown.split())
    return shown if len(shown) <= EXAMPLE_LENGTH else shown[: EXAMPLE_LENGTH - 1] + "…"
