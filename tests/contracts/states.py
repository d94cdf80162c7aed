"""The implementations of shared state, each with a way to open it and to let its time pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_llmbatch.engine.state.protocols import Meter, Need, Scope, State, Taken
from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from tests.services.redis_server import running

#: Seconds of the windows in these suites, and of the arrival slack.
WINDOW_S, SLACK_S = 1.0, 0.1


class ManualClock:
    """Unix seconds that stand still until they are moved."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    async def move(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class Store:
    """One store of state, fresh for a test."""

    #: opens it once more, as another worker would; None when only its maker can use it
    reopen: Callable[[], State] | None
    state: State
    #: lets so many seconds of the state's time pass
    pass_time: Callable[[float], Awaitable[None]]
    #: what :func:`opened` in another process takes; None when no process can reach it
    address: str | None = None


@asynccontextmanager
async def sqlite_in_memory(tmp_path: Path) -> AsyncIterator[Store]:
    clock = ManualClock()
    state = SqliteState(":memory:", now=clock)
    yield Store(reopen=None, state=state, pass_time=clock.move)
    await state.close()


@asynccontextmanager
async def sqlite_in_a_file(tmp_path: Path) -> AsyncIterator[Store]:
    clock, path = ManualClock(), tmp_path / "state.db"
    async with AsyncExitStack() as stack:

        def reopen() -> State:
            state = SqliteState(path, now=clock)
            stack.push_async_callback(state.close)
            return state

        yield Store(reopen=reopen, state=reopen(), pass_time=clock.move, address=f"sqlite:{path}")


@asynccontextmanager
async def redis_server(tmp_path: Path) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        address = stack.enter_context(running(tmp_path / "redis")).url

        def reopen() -> State:
            state = opened(address)
            stack.push_async_callback(state.close)
            return state

        yield Store(reopen=reopen, state=reopen(), pass_time=really_wait, address=address)


#: By name. One on a server brings its own clock: its ``pass_time`` waits.
IMPLEMENTATIONS = {"sqlite-memory": sqlite_in_memory, "sqlite-file": sqlite_in_a_file, "redis": redis_server}


def opened(address: str) -> State:
    """Open a store in another process, on the machine's clock."""
    scheme, _, rest = address.partition(":")
    return SqliteState(rest) if scheme == "sqlite" else RedisState(connect(address), domain="test")


async def really_wait(seconds: float) -> None:
    """Let time pass for a store with a clock of its own."""
    await asyncio.sleep(seconds)


def requests(capacity: int, **further: object) -> Meter:
    """Return a meter of requests in a window, all of which may be taken at once."""
    return _meter("requests", capacity, further)


def tokens(capacity: int, **further: object) -> Meter:
    """Return a meter of tokens in a window, all of which may be taken at once."""
    return _meter("tokens", capacity, further)


def dollars(capacity: int) -> Meter:
    """Return a budget in micro-dollars."""
    return Meter(key="budget/dag/run/task", unit="micro_usd", capacity=capacity, window_s=None)


def _meter(unit: str, capacity: int, further: dict[str, object]) -> Meter:
    usual = {"key": f"a/{unit}", "window_s": WINDOW_S, "burst_s": 10.0, "slack_s": SLACK_S}
    return Meter(**{**usual, **further, "unit": unit, "capacity": capacity})  # type: ignore[arg-type]


def scope(*meters: Meter, **further: object) -> Scope:
    """Return a scope of one owner."""
    usual = {"throttle": "a/m", "max_in_flight": 1000, "owner": "dag/run/task/-1", "fence": 1}
    return Scope(**{"domain": "test", "lease_s": 60.0, **usual, **further, "meters": meters})  # type: ignore[arg-type]


def needs(count: int, tokens: int = 10, micro_usd: int = 0) -> list[Need]:
    """Return so many equal needs."""
    return [Need(tokens=tokens, micro_usd=micro_usd)] * count


def another(store: Store) -> State:
    return store.reopen() if store.reopen is not None else store.state


async def used(store: Store, of) -> dict[str, int]:
    return {level.key: level.used for level in await store.state.levels(of)}


async def take(store: Store, of, count: int, settled=(), **need: int) -> Taken:
    return await store.state.take(of, needs(count, **need), settled)
