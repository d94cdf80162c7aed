"""What a check has found: one line each, without a secret."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

Level = Literal["ok", "warn", "fail", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    what: str
    found: str
    #: what to do about it; empty where nothing needs to be done
    remedy: str = ""


def of_error(what: str, error: Exception, level: Level = "fail") -> Finding:
    """Return what an error of ours says: its remedy stands behind a semicolon, else a stop."""
    return of_words(what, str(error), level)


def of_words(what: str, words: str, level: Level) -> Finding:
    """Return the finding that a sentence or two make; see :func:`of_error`."""
    found, separator, remedy = words.partition("; ")
    if not separator:
        found, _, remedy = words.partition(". ")
    return Finding(level=level, what=what, found=found.rstrip("."), remedy=remedy.rstrip("."))


def without(secrets: Iterable[str], findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with asterisks in place of secrets."""
    hidden = sorted(filter(None, secrets), key=len, reverse=True)

    def clean(text: str) -> str:
        for secret in hidden:
            text = text.replace(secret, "***")
        return " ".join(text.split())

    return [replace(one, found=clean(one.found), remedy=clean(one.remedy)) for one in findings]


def as_text(findings: Sequence[Finding]) -> str:
    """Return one line for each: ``level  what  found  remedy``."""
    width = max((len(one.what) for one in findings), default=0)
    return "\n".join(
        "  ".join((f"{one.level:<7}", f"{one.what:<{width}}", one.found, one.remedy)).rstrip()
        for one in findings
    )


def as_json(findings: Sequence[Finding]) -> str:
    """Return them as a JSON object: ``ok`` and ``findings``."""
    content = {"ok": not fails(findings), "findings": [asdict(one) for one in findings]}
    return json.dumps(content, indent=1, ensure_ascii=False)


def fails(findings: Iterable[Finding]) -> bool:
    """Whether one of them fails."""
    return any(one.level == "fail" for one in findings)
