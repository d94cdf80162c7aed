"""A coroutine run from a plain method, whatever runs around it."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import timeout

from airflow_provider_llmbatch.operators.bridge import Bridge

ENDED = (CancelledError, asyncio.CancelledError)


async def forever(seen: list[str]) -> None:
    """Wait until somebody ends it, and put things in order then."""
    seen.append("started")
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.05)
        seen.append("in order")


def test_it_returns_what_the_coroutine_returns_and_raises_what_it_raises():
    async def answer() -> int:
        return 42

    async def fail() -> int:
        raise ValueError("no")

    assert Bridge[int]().run(answer) == 42
    with pytest.raises(ValueError, match="no"):
        Bridge[int]().run(fail)


def test_it_works_inside_of_a_running_loop():
    async def outer() -> int:
        async def inner() -> int:
            await asyncio.sleep(0)
            return 7

        return Bridge[int]().run(inner)

    assert asyncio.run(outer()) == 7


def test_two_run_at_once_from_two_threads():
    met = threading.Barrier(2, timeout=10)

    async def meet() -> int:
        return await asyncio.to_thread(met.wait)

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(lambda _: Bridge[int]().run(meet), range(2))) == [0, 1]


def test_context_variables_of_the_caller_are_seen_inside():
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")
    variable.set("the caller's")

    async def read() -> str:
        return variable.get()

    assert Bridge[str]().run(read) == "the caller's"


def test_airflows_time_out_of_a_task_ends_the_coroutine_in_order():
    seen: list[str] = []
    with pytest.raises(AirflowTaskTimeout), timeout(1):
        Bridge[None]().run(lambda: forever(seen))
    assert seen == ["started", "in order"]


def test_a_signal_handler_of_the_waiting_thread_can_end_it():
    """This is how ``on_kill`` comes: from a handler, while the main thread waits."""
    seen: list[str] = []
    bridge: Bridge[None] = Bridge()
    before = signal.signal(signal.SIGTERM, lambda *_: bridge.cancel())
    killer = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGTERM))
    try:
        killer.start()
        began = time.monotonic()
        with pytest.raises(ENDED):
            bridge.run(lambda: forever(seen))
        assert time.monotonic() - began < 3
        assert seen == ["started", "in order"]
    finally:
        signal.signal(signal.SIGTERM, before)
        killer.join()


@pytest.mark.parametrize("times", [1, 3])
def test_what_is_cancelled_before_it_starts_never_does(times):
    seen: list[str] = []
    bridge: Bridge[None] = Bridge()
    for _ in range(times):
        bridge.cancel()
    with pytest.raises(ENDED):
        bridge.run(lambda: forever(seen))
    assert seen == []


def test_no_thread_is_left_behind():
    async def nothing() -> None:
        return None

    before = threading.active_count()
    for _ in range(5):
        Bridge[None]().run(nothing)
    assert threading.active_count() == before
