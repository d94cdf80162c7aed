"""Run the engine's coroutine from a plain method, whatever runs around it."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Bridge(Generic[T]):
    """
    Runs one coroutine on an event loop and a thread of its own.

    So it works inside a running loop, from any thread and twice at once; the calling thread only waits,
    and signals reach it.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False

    def run(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """
        Run what ``start`` returns, and return its value.

        An exception in the waiting thread, such as a time-out, ends the coroutine in good order first.
        """
        outcome: Future[T] = Future()
        around = contextvars.copy_context()
        thread = threading.Thread(
            target=around.run, args=(self._serve, start, outcome), name="llmbatch", daemon=True
        )
        thread.start()
        try:
            return outcome.result()
        finally:
            self.cancel()
            thread.join()

    def cancel(self) -> None:
        """End the coroutine soon; from any thread, and as often as you like."""
        self._cancelled = True
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

    def _serve(self, start: Callable[[], Coroutine[Any, Any, T]], outcome: Future[T]) -> None:
        try:
            with asyncio.Runner() as runner:
                outcome.set_result(runner.run(self._main(start)))
        except BaseException as error:
            outcome.set_exception(error)

    async def _main(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(start())
        if self._cancelled:
            self._task.cancel()
        return await self._task
