"""DAGs in a real Airflow in this process: its database, its execution API, its runner of tasks."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from airflow.sdk import DAG

from airflow_provider_llmbatch.simulator.scenario import check_scenario
from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings
from tests.engine.rehearsal import Simulated, simulated

ROOT = Path(__file__).parents[2]
REFUSAL = {"match": {"contains": "refuse this"}, "reply": {"refusal": "I would rather not."}}


@pytest.fixture(scope="session")
def dags_folder(airflow_home) -> Path:
    """Return a folder with the DAGs of the repository and those of the tests."""
    folder = airflow_home / "dags"
    shutil.copytree(ROOT / "dags", folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(Path(__file__).parent / "files", folder, dirs_exist_ok=True)
    return folder


def load(path: Path) -> dict[str, DAG]:
    """Import a DAG file, and return its DAGs by their ids."""
    spec = importlib.util.spec_from_file_location(f"dag_file_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return {dag.dag_id: dag for dag in vars(module).values() if isinstance(dag, DAG)}


@pytest.fixture
def arrivals(monkeypatch, tmp_path) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Start a simulator, lead the default connection to it, and return what lists its arrivals."""
    scenario = check_scenario({"rules": [REFUSAL]}, source="test")
    with running(SimulatorSettings(rpm=10**6, tpm=10**9, latency_s=0.01, scenario=scenario)) as url:
        connection = {"conn_type": "llmbatch", "host": url, "password": "sk-simulated-0123456789"}
        monkeypatch.setenv("AIRFLOW_CONN_LLMBATCH_DEFAULT", json.dumps(connection))
        monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", str(tmp_path / "results"))
        monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")
        yield lambda: httpx.get(f"{url.removesuffix('/v1')}/_sim/arrivals").json()


@pytest.fixture
def simulators(monkeypatch, tmp_path) -> Iterator[list[Simulated]]:
    """Start three simulators, and lead the connections of ``routed_summaries`` to them."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", str(tmp_path / "results"))
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")
    with ExitStack() as stack:
        found = []
        for name in ("PRIMARY", "SECOND", "THIRD"):
            found.append(stack.enter_context(simulated(latency_s=0.01)))
            connection = {"conn_type": "llmbatch", "host": found[-1].url, "password": f"sk-{name}-0123456789"}
            monkeypatch.setenv(f"AIRFLOW_CONN_LLM_{name}", json.dumps(connection))
        yield found


@pytest.fixture
def run_dag(airflow_db, dags_folder, monkeypatch) -> Iterator[Callable[..., Any]]:
    """Return ``run_dag(file, dag_id, **conf)``, which runs a DAG to its end and returns the DAG run."""
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(dags_folder))
    # Airflow's runner of tasks takes the signal for itself, and tests could not be ended any more.
    before = signal.getsignal(signal.SIGTERM)
    yield lambda file, dag_id, **conf: load(dags_folder / file)[dag_id].test(run_conf=conf)
    signal.signal(signal.SIGTERM, before)
