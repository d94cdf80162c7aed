"""Simulators on real sockets, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from airflow_provider_llmbatch.simulator.scenario import check_scenario
from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings


class ManualClock:
    """Unix seconds that stand still until they are moved."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Client:
    """Talks to one simulator."""

    url: str
    http: httpx.Client
    clock: ManualClock

    def ask(self, text: str = "hello", *, key: str = "sk-test", **params: Any) -> httpx.Response:
        body = {"model": "m-1", "messages": [{"role": "user", "content": text}], **params}
        return self.http.post(
            f"{self.url}/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}
        )

    def control(self, name: str, content: Any = None) -> httpx.Response:
        path = f"{self.url.removesuffix('/v1')}/_sim/{name}"
        return self.http.get(path) if content is None else self.http.post(path, json=content)

    def arrivals(self) -> list[dict[str, Any]]:
        return self.control("arrivals").json()


@pytest.fixture
def start() -> Iterator[Callable[..., Client]]:
    """Return a function that starts a simulator without latency; ``rules`` is its scenario."""
    with ExitStack() as stack:

        def _start(*rules: dict[str, Any], **settings: Any) -> Client:
            clock = ManualClock()
            scenario = check_scenario({"rules": rules}, source="test")
            told = SimulatorSettings(**{"latency_s": 0.0, "scenario": scenario, **settings})
            url = stack.enter_context(running(told, clock=clock))
            return Client(url=url, http=stack.enter_context(httpx.Client(timeout=10.0)), clock=clock)

        yield _start
