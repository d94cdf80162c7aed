"""
Everything a service can say about waiting, read in one place.

Sources: RFC 9110 §10.2.3 (``Retry-After``: seconds or a date in one of three shapes), the ``x-ratelimit-*``
and ``retry-after-ms`` headers of OpenAI-compatible services, and, where no header says it, the words of an
error ("try again in 6m0s", "retry after 9 seconds").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: No wait is believed beyond this; a header that says more is cut to it. Seconds.
LONGEST_WAIT_S = 24 * 3600.0
#: Plain numbers above these are read as Unix seconds (2001-09-09), and as Unix milliseconds.
EARLIEST_UNIX_TIME = 1e9
EARLIEST_UNIX_TIME_MS = 1e12

_NUMBER = re.compile(r"\d+(\.\d+)?|\.\d+")
_N = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"(?:{_N}d)?(?:{_N}h)?(?:{_N}m(?!s))?(?:{_N}s)?(?:{_N}ms)?")
_UNITS = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_WORD = r"(milliseconds?|ms|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)"
_STEP = re.compile(rf"{_N}\s?{_WORD}", re.IGNORECASE)
_WORDS = re.compile(
    rf"\b(?:try again|retry)(?: in| after)\s((?:\d+(?:\.\d+)?\s?{_WORD})+)(?!\w)", re.IGNORECASE
)


def seconds(text: str, now: float) -> float | None:
    """
    Read a wait in any known shape: ``59.1``, ``6m0s``, ``20ms``, an HTTP date, an ISO time.

    :param text: the header's value.
    :param now: Unix seconds; dates are turned into waits from here, a past one into 0.
    :return: seconds from 0 to :data:`LONGEST_WAIT_S`, or None for an unknown shape.
    """
    text = text.strip()
    if len(text) > 64 or not text.isascii():
        return None
    if _NUMBER.fullmatch(text):
        return _number(float(text), now)
    duration = _DURATION.fullmatch(text)
    if duration and text:
        return _clamped(sum(float(n) * u for n, u in zip(duration.groups(), _UNITS, strict=True) if n))
    moment = _moment(text)
    return None if moment is None else _clamped(moment - now)


def told(headers: Mapping[str, str], message: str, now: float) -> float | None:
    """
    Return how long a service that refuses for now asks to wait, or None if it does not say.

    :param headers: with lower-case names.
    :param message: the error's words, which are read last.
    :param now: Unix seconds.
    """
    for wait in (retry_after(headers, now), limit_reset(headers, now)):
        if wait is not None:
            return wait
    return in_words(message, now)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """
    Return how long the service asks to wait before trying again, or None if it does not say.

    :param headers: with lower-case names.
    :param now: Unix seconds.
    """
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(milliseconds) and len(milliseconds) < 20:
        return _clamped(float(milliseconds) / 1000.0)
    value = headers.get("retry-after")
    return None if value is None else seconds(value, now)


def limit_reset(headers: Mapping[str, str], now: float) -> float | None:
    """
    Return the seconds until an exhausted limit is free again, judged by ``x-ratelimit-*``.

    Only limits that say they have nothing left count; None when there is none of them.
    """
    waits = []
    for unit in ("requests", "tokens"):
        if headers.get(f"x-ratelimit-remaining-{unit}", "").strip() == "0":
            wait = seconds(headers.get(f"x-ratelimit-reset-{unit}", ""), now)
            if wait is not None:
                waits.append(wait)
    return max(waits, default=None)


def in_words(message: str, now: float) -> float | None:
    """Return the wait that stands in a sentence, or None."""
    found = _WORDS.search(message)
    if found is None:
        return None
    steps = (f"{number}{_letters(word.lower())}" for number, word in _STEP.findall(found[1]))
    return seconds("".join(steps), now)


def _letters(word: str) -> str:
    return "ms" if word == "ms" or word.startswith("milli") else word[0]


def _number(number: float, now: float) -> float:
    # No service asks for a wait of thirty years: so large a number is a Unix time.
    if number > EARLIEST_UNIX_TIME_MS:
        number /= 1000.0
    return _clamped(number - now if number > EARLIEST_UNIX_TIME else number)


def _moment(text: str) -> float | None:
    try:
        return (
            datetime.fromisoformat(text)
            .replace(tzinfo=datetime.fromisoformat(text).tzinfo or UTC)
            .timestamp()
        )
    except (ValueError, OverflowError):
        pass
    try:
        parsed = parsedate_to_datetime(text)
        return parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _clamped(wait: float) -> float:
    return min(max(wait, 0.0), LONGEST_WAIT_S)
