"""A task under a real supervisor: killed, marked as failed, cleared; nothing that was paid is lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings
from tests.dags.installation import Installation, installed, is_over, kill, talking_to, until
from tests.operators.stage import Service

pytestmark = pytest.mark.slow

ITEMS, IN_FLIGHT, LATENCY_S = 60, 4, 0.5


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Start a simulator that lets a batch of :data:`ITEMS` take some seconds."""
    with running(SimulatorSettings(rpm=10**6, tpm=10**9, latency_s=LATENCY_S)) as url:
        yield Service(url)


@pytest.fixture(scope="module")
def airflow(airflow_db, service, tmp_path_factory) -> Iterator[Installation]:
    """Start an Airflow whose default connection leads to the simulator."""
    home = tmp_path_factory.mktemp("airflow")
    connection = {
        **{"conn_type": "llmbatch", "host": service.url, "password": "sk-simulated-0123456789"},
        "extra": {"max_in_flight": IN_FLIGHT},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_LLMBATCH_DEFAULT", json.dumps(connection))
        with installed(home, airflow_db, Path(__file__).parent / "files" / "long.py") as started:
            yield started


@pytest.fixture(autouse=True)
def forget(service):
    """Start every test with an empty list of arrivals."""
    service.reset()


def half_way(service: Service) -> None:
    until(lambda: sum(a.status == 200 for a in service.arrivals()) >= ITEMS // 3, "a third of the answers")


def test_a_killed_task_goes_on_where_it_was_and_its_page_can_be_read_all_the_time(airflow, service):
    run = airflow.trigger("long")
    half_way(service)
    link = airflow.request("GET", f"{run.path}/taskInstances/dispatch/links")
    page = airflow.request("GET", link["extra_links"]["LLM batch report"])
    assert "Still running, as of" in page
    port = int(service.url.rpartition(":")[2].partition("/")[0])
    task = talking_to(port, airflow.processes[1])
    kill(task)
    answered = sum(a.status == 200 for a in service.arrivals())
    instance = run.wait_for("dispatch", "success", "failed")
    assert instance["state"] == "success"
    assert instance["try_number"] == 2
    manifest = run.returned("dispatch")
    assert manifest["counts"] == {"ok": ITEMS}
    assert ITEMS // 3 - IN_FLIGHT <= manifest["resumed"] <= answered
    again = len(service.arrivals()) - ITEMS
    assert 0 <= again <= IN_FLIGHT
    assert manifest["possible_double_paid"] >= again
    assert "complete" in airflow.request("GET", link["extra_links"]["LLM batch report"])


def test_a_task_that_is_marked_as_failed_ends_in_order_and_goes_on_when_it_is_cleared(airflow, service):
    run = airflow.trigger("long")
    half_way(service)
    port = int(service.url.rpartition(":")[2].partition("/")[0])
    task = talking_to(port, airflow.processes[1])
    began = time.monotonic()
    airflow.request("PATCH", f"{run.path}/taskInstances/dispatch", {"new_state": "failed"})
    until(lambda: is_over(task), "the end of the task's process", 15)
    # A heartbeat, each second here, tells the supervisor; on_kill has three seconds from there.
    assert time.monotonic() - began < 1 + 3
    assert "told to end" in run.log("dispatch", 1)
    answered = sum(a.status == 200 for a in service.arrivals())
    clear = {"dry_run": False, "task_ids": ["dispatch"], "dag_run_id": run.run_id}
    airflow.request("POST", "/api/v2/dags/long/clearTaskInstances", clear)
    run.wait_for("dispatch", "success")
    manifest = run.returned("dispatch")
    assert manifest["counts"] == {"ok": ITEMS}
    assert answered - IN_FLIGHT <= manifest["resumed"] <= answered
    assert len(service.arrivals()) - ITEMS <= IN_FLIGHT
