"""
One payment for one question: whoever claims it first asks, the others wait for the answer.

A question is the fingerprint of a request. A claim is held for a short time and renewed while its call is
under way, so that a killed owner is replaced soon; once answered, it points to the row that has the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

#: Seconds a claim is held without a sign of life.
HELD_S = 60.0
#: Seconds for which an answer can be reused.
KEPT_S = 7 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """Where an answer lies."""

    #: result folder
    path: str
    chunk: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What came of asking for a question; exactly one of the three."""

    #: the question is ours to ask
    won: bool = False
    #: somebody else is asking it; seconds until their claim ends if they are heard of no more
    held_s: float = 0.0
    #: it has been answered
    answer: Pointer | None = None


class Claims(Protocol):
    """Who asks which question, and where the answers are."""

    async def claim(self, question: str, holder: str, *, fence: int, held_s: float = HELD_S) -> Claimed:
        """
        Ask for a question.

        :param question: fingerprint of the request, hex.
        :param holder: the task; a later ``fence`` of the same task takes its claims over.
        """

    async def look(self, question: str) -> Pointer | None:
        """Return where the answer lies, if there is one, and claim nothing."""

    async def renew(self, questions: Sequence[str], holder: str, *, held_s: float = HELD_S) -> None:
        """Hold on to claims whose calls are still under way."""

    async def answer(self, question: str, holder: str, pointer: Pointer, *, kept_s: float = KEPT_S) -> None:
        """Say where the answer lies; only the holder's word counts."""

    async def release(self, questions: Sequence[str], holder: str) -> None:
        """Let go of claims that will not be answered, so that others may ask."""

    async def forget(self, question: str, pointer: Pointer) -> None:
        """Take back an answer that cannot be read any more."""

    async def forget_folder(self, path: str) -> None:
        """Take back all answers that lie in a result folder."""
