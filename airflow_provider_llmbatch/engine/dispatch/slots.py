"""Connection slots: how many calls may be open at once, adjustable while they are."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """
    A first-come semaphore whose size can change.

    :param size: how many may be held at once.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def wanted(self) -> int:
        """How many are held or waited for."""
        return self.held + len(self._waiting)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold a slot."""
        await self._acquire()
        try:
            yield
        finally:
            self.held -= 1
            self._wake()

    def resize(self, size: int) -> None:
        """Change how many may be held; those that are held stay held."""
        self.size = size
        self._wake()

    async def _acquire(self) -> None:
        if self.held < self.size and not self._waiting:
            self.held += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.held -= 1
                self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting and self.held < self.size:
            turn = self._waiting.popleft()
            if not turn.done():
                # The slot passes on before the waiter runs, so nobody can slip in between.
                self.held += 1
                turn.set_result(None)
