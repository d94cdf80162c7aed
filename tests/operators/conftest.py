"""Operators called as a task calls them, against a simulator on a socket, in an installation of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_provider_llmbatch.simulator.scenario import check_scenario
from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings
from tests.operators.stage import KEY, Service, Stage


@pytest.fixture
def simulate() -> Iterator[Callable[..., Service]]:
    """Return a function that starts a simulator with wide limits; ``rules`` is its scenario."""
    with ExitStack() as stack:

        def _start(*rules: dict[str, Any], **settings: Any) -> Service:
            scenario = check_scenario({"rules": rules}, source="test")
            wide = {"rpm": 10**6, "tpm": 10**9, "latency_s": 0.01, "scenario": scenario}
            return Service(stack.enter_context(running(SimulatorSettings(**{**wide, **settings}))))

        yield _start


@pytest.fixture
def service(simulate) -> Service:
    """Return a simulator that answers everything."""
    return simulate()


@pytest.fixture
def connect(monkeypatch) -> Callable[..., None]:
    """Return a function that sets the default connection."""

    def _connect(url: str, *, key: str = KEY, conn_type: str = "llmbatch", **extra: Any) -> None:
        connection = {"conn_type": conn_type, "host": url, "password": key, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_LLMBATCH_DEFAULT", json.dumps(connection))

    return _connect


@pytest.fixture
def stage(tmp_path, monkeypatch, service, connect) -> Stage:
    """Return a stage whose connection leads to ``service``."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", str(tmp_path / "results"))
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")
    connect(service.url)
    return Stage(tmp_path, service)
