"""Operators called as a task calls them, against a simulator on a socket, in an installation of their own."""

from __future__ import annotations

import contextvars
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.simulator.arrivals import Arrival, read_arrivals
from airflow_provider_llmbatch.simulator.scenario import check_scenario
from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings

KEY = "sk-simulated-0123456789"
PROMPT = {"system": "Answer in a word.", "user": "{{ text }}"}


@dataclass
class Service:
    """A simulator and what has arrived there."""

    url: str

    def arrivals(self) -> list[Arrival]:
        return read_arrivals(httpx.get(f"{self.url.removesuffix('/v1')}/_sim/arrivals").json())

    def play(self, *rules: dict[str, Any]) -> None:
        httpx.post(f"{self.url.removesuffix('/v1')}/_sim/scenario", json={"rules": rules}).raise_for_status()


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


@dataclass
class TaskInstance:
    """What operators use of Airflow's task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: int = 1
    xcoms: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = json.loads(json.dumps(value))


@dataclass
class Stage:
    """A folder with a DAG file, results and state, and a way to run tasks in it."""

    folder: Path
    service: Service
    dag: DAG
    instance: TaskInstance | None = None

    @property
    def results_path(self) -> Path:
        return self.folder / "results"

    def write(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def rows(self, count: int, name: str = "items.jsonl") -> str:
        lines = (json.dumps({"id": f"i{n}", "vars": {"text": f"number {n}"}}) + "\n" for n in range(count))
        return self.write(name, "".join(lines))

    def context(self, task: BaseOperator, **instance: Any) -> dict[str, Any]:
        self.instance = TaskInstance("d", "r", task.task_id, **instance)
        return {
            **{"dag": self.dag, "task": task, "params": dict(self.dag.params), "run_id": "r"},
            **{"ti": self.instance, "task_instance": self.instance},
        }

    def run(self, task: BaseOperator, **instance: Any) -> Any:
        """Render the templates and execute, as the task runner does."""
        context = self.context(task, **instance)
        task.render_template_fields(context)
        inside = contextvars.copy_context()
        inside.run(ExecutorSafeguard.tracker.set, task)
        return inside.run(task.execute, context)

    def outcomes(self, path: str | None = None) -> list[tuple[str, str]]:
        """Return id and outcome of all rows, in order."""
        place = path or str(self.results_path / "d" / "r" / "t")
        return [(row.id, str(row.outcome)) for row in results(open_folder(place))]


@pytest.fixture
def stage(tmp_path, monkeypatch, service, connect) -> Stage:
    """Return a stage whose connection leads to ``service``."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", str(tmp_path / "results"))
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")
    connect(service.url)
    dag = DAG("d", schedule=None, params={"n": "5", "word": "abc", "none": None})
    dag.fileloc = os.fspath(tmp_path / "dag.py")
    return Stage(tmp_path, service, dag)
