"""Wait for something only so long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, act: Callable[[], T]) -> T:
    """
    Return what ``act`` returns, unless it takes too long; it is then left to itself.

    :raises TimeoutError: after so many seconds.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(act())
        # whatever it is, it is raised where somebody waits for it
        except BaseException as error:
            outcome.set_exception(error)

    # A thread of a pool would be waited for when the process ends.
    threading.Thread(target=run, name="llmbatch-store", daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError as error:
        if outcome.done():
            raise
        raise TimeoutError(f"no answer within {seconds:g} s") from error
