"""Breakages that change nothing anybody could see or rely on, by module: what is broken, and why it is so."""

from __future__ import annotations

_TYPES = "tells the checker of types what the rest of the condition implies"
_NO_2XX = "no status of 2xx comes here: such a reply is none, or is judged by the status inside"
_ENOUGH = "a bound on what is read of a hostile body; its exact size means nothing"

EQUIVALENT: dict[str, dict[str, str]] = {
    "dispatch.advise": {
        "_about_status: 0 → 1": "stands for no status, and no rule asks for either",
        "backoff: 30 → 31": "keeps the power finite; the longest pause is reached long before",
    },
    "dispatch.waits": {
        "_number: number > EARLIEST_UNIX_TIME_MS → number >= EARLIEST_UNIX_TIME_MS": (
            "at the bound itself either reading is longer than the longest wait"
        ),
    },
    "dispatch.wire.chat": {
        "_reply: without choice is None": _TYPES,
        "_is_silent: 0 → 1": "stands for no content; anything does that is none of the three",
    },
    "dispatch.wire.errors": {
        "failure: status < 200 → status <= 200": _NO_2XX,
        "failure: 200 → 201": _NO_2XX,
        "failure: 4000 → 4001": _ENOUGH,
        "excerpt: 4 → 5": _ENOUGH,
    },
    "validate.salvage": {
        "_mended: without ''": "re.sub takes None for an empty replacement, though nothing says so",
    },
}
