"""A Redis server for the session; tests use domains of their own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from airflow_provider_llmbatch.engine.state.protocols import Meter, Scope
from tests.services.redis_server import Server, running


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for all tests that only need one."""
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def scope_of() -> Callable[..., Scope]:
    """Make scopes that share one domain, new for each test."""
    domain = f"test-{next(_numbers)}"

    def make(owner: str = "a", fence: int = 1, **changes: object) -> Scope:
        values: dict[str, object] = {
            "window_s": 2.0,
            "slack_s": 0.1,
            "requests": 20,
            "tokens": 2000,
            "usd": None,
        }
        values |= {k: changes.pop(k) for k in list(changes) if k in values}
        rate = {"window_s": values["window_s"], "slack_s": values["slack_s"], "burst_s": 1.0}
        meters = [
            Meter(key="m/requests", unit="requests", capacity=values["requests"], **rate),  # type: ignore[arg-type]
            Meter(key="m/tokens", unit="tokens", capacity=values["tokens"], **rate),  # type: ignore[arg-type]
        ]
        if values["usd"] is not None:
            meters.append(Meter(key="budget/x", unit="micro_usd", capacity=values["usd"], window_s=None))  # type: ignore[arg-type]
        settings: dict[str, object] = {"domain": domain, "throttle": "m", "max_in_flight": 1000, **changes}
        return Scope(owner=owner, fence=fence, meters=tuple(meters), **settings)  # type: ignore[arg-type]

    return make


_numbers = itertools.count()
