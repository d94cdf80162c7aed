"""What the tests of the operators share: an installation, and tasks called as Airflow calls them."""

from __future__ import annotations

import contextvars
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_provider_llmbatch.engine.items import Result
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator
from airflow_provider_llmbatch.operators.report import LLMBatchReportOperator
from airflow_provider_llmbatch.operators.split import LLMBatchSplitOperator
from airflow_provider_llmbatch.simulator.arrivals import Arrival, read_arrivals

KEY = "sk-simulated-0123456789"
PROMPT = {"system": "Answer in a word.", "user": "{{ text }}"}


@dataclass
class Service:
    """A simulator and what has arrived there."""

    url: str

    def arrivals(self) -> list[Arrival]:
        return read_arrivals(httpx.get(f"{self.url.removesuffix('/v1')}/_sim/arrivals").json())

    def reset(self) -> None:
        """Forget what has arrived."""
        httpx.post(f"{self.url.removesuffix('/v1')}/_sim/reset").raise_for_status()

    def play(self, *rules: dict[str, Any]) -> None:
        httpx.post(f"{self.url.removesuffix('/v1')}/_sim/scenario", json={"rules": rules}).raise_for_status()


@dataclass
class TaskInstance:
    """What operators use of Airflow's task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: int = 1
    max_tries: int = 1
    id: UUID = field(default_factory=uuid4)
    xcoms: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = json.loads(json.dumps(value))


@dataclass
class Stage:
    """A folder with a DAG file, results and state, and a way to run tasks in it."""

    folder: Path
    service: Service
    #: of the last task
    instance: TaskInstance | None = None

    def dag(self) -> DAG:
        """Return a DAG for one task, as a new process reads it."""
        dag = DAG("d", schedule=None, params={"five": "5", "word": "abc", "nothing": None})
        dag.fileloc = str(self.folder / "dag.py")
        return dag

    @property
    def results_path(self) -> Path:
        return self.folder / "results"

    def write(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def items(self, count: int, name: str = "items.jsonl") -> str:
        lines = (json.dumps({"id": f"i{n}", "vars": {"text": f"number {n}"}}) + "\n" for n in range(count))
        return self.write(name, "".join(lines))

    def split(self, **arguments: Any) -> LLMBatchSplitOperator:
        return LLMBatchSplitOperator(
            **{"task_id": "s", "dag": self.dag(), "prompt": PROMPT, "model": "m-1", **arguments}
        )

    def dispatch(self, **arguments: Any) -> LLMBatchDispatchOperator:
        given = {"task_id": "t", "dag": self.dag(), "prompt": PROMPT, "model": "m-1", "retries": 1}
        return LLMBatchDispatchOperator(**{**given, **arguments})

    def report(self, **arguments: Any) -> LLMBatchReportOperator:
        return LLMBatchReportOperator(**{"task_id": "p", "dag": self.dag(), **arguments})

    def context(
        self, task: BaseOperator, run_id: str = "r", run_type: str = "manual", **instance: Any
    ) -> dict[str, Any]:
        self.instance = TaskInstance("d", run_id, task.task_id, **instance)
        return {
            **{"dag": task.dag, "task": task, "params": dict(task.dag.params), "run_id": run_id},
            **{"ti": self.instance, "task_instance": self.instance},
            "dag_run": SimpleNamespace(run_type=run_type),
        }

    def run(self, task: BaseOperator, **instance: Any) -> Any:
        """Render the templates and execute, as the task runner does."""
        context = self.context(task, **instance)
        task.render_template_fields(context)
        inside = contextvars.copy_context()
        inside.run(ExecutorSafeguard.tracker.set, task)
        return inside.run(task.execute, context)

    def rows(self, task_id: str = "t") -> list[Result]:
        """Return the rows of a task, in order."""
        return list(results(open_folder(str(self.results_path / "d" / "r" / task_id), read_only=True)))
