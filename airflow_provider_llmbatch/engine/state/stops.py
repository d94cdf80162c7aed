"""
The wish that a run stops, and goes on later: whoever has it leaves a note, and its workers heed it.

Nothing is killed. What is in flight is awaited and stored, the rest stays ``unsent``, and the tasks end. The
note holds for tasks of the run that start later, until it is lifted, or one of the tasks that have heeded it
is cleared: who clears a task wants the run to go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: Seconds for which a note is kept.
KEPT_S = 14 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Who wants a run to stop, and why."""

    by: str
    why: str
    #: Unix seconds of the state's clock
    at: float


class Stops(Protocol):
    """Which runs shall stop. A run is named ``<dag>/<run>``."""

    async def ask(self, run: str, *, by: str, why: str) -> None:
        """Have a run stop; a note that was there is replaced."""

    async def asked(self, run: str) -> Stop | None:
        """Return the note that a run has."""

    async def lift(self, run: str) -> None:
        """Let a run go on."""

    async def heed(self, run: str, owner: str, occasion: str) -> Stop | None:
        """
        Return what stops a task of the run, and take down that the task knows.

        :param owner: the task instance.
        :param occasion: what its tries have in common until it is cleared. When the task has heeded the note
            on another occasion, it was cleared since, and the note is lifted.
        """
