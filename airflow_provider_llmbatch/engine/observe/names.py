"""
Names that every metrics backend takes, whatever an id looks like.

Plain statsd has no labels, so the values of dimensions are parts of a name, with dots between them. A value
that would break the name, or could be mistaken for another one, is rewritten and gets a hash of what it was.
"""

from __future__ import annotations

import hashlib
import re

#: Longest value, so that a name with four of them stays within the 250 characters that Airflow lets pass.
LONGEST = 48
#: Values of one dimension that a run tells apart; models and endpoints could be any number.
MOST_VALUES = 20

#: Where a dimension has no value, and where it has too many.
NONE = "none"
OTHER = "other"

_HASH = 10
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]+")
_REWRITTEN = re.compile(rf".*-[0-9a-f]{{{_HASH}}}")


def segment(text: str) -> str:
    """
    Return ``text`` as one part of a metric's name; two different texts never become the same.

    What is short and made of letters, digits, ``_`` and ``-`` stays as it is, unless it looks rewritten.
    """
    kept = _FOREIGN.sub("_", text)
    if kept == text and len(text) <= LONGEST and not _is_taken(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{kept[: LONGEST - _HASH - 1]}-{digest}"


def _is_taken(text: str) -> bool:
    return text in ("", NONE, OTHER) or _REWRITTEN.fullmatch(text) is not None


class Values:
    """
    The values of one dimension in one run: the first of them keep their names, all later ones share one.

    :param most: how many are told apart.
    """

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._names: dict[str, str] = {}

    def name(self, text: str) -> str:
        """Return the part of a name for ``text``: its own, :data:`NONE` or :data:`OTHER`."""
        if not text:
            return NONE
        if text not in self._names:
            if len(self._names) >= self._most:
                return OTHER
            self._names[text] = segment(text)
        return self._names[text]
