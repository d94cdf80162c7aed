"""A task under a real supervisor: killed, marked as failed, cleared; nothing that was paid is lost."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from airflow_provider_llmbatch.compat import AIRFLOW_V_3_3_PLUS
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.review.decision import Person, Wish
from airflow_provider_llmbatch.engine.review.queue import Queue
from airflow_provider_llmbatch.operators import parking
from airflow_provider_llmbatch.operators.places import review_folder
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
        patch.setenv("AIRFLOW__LLMBATCH__DEFER_AFTER", "2")
        patch.setenv("AIRFLOW__SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL", "1")
        with installed(home, airflow_db, Path(__file__).parent / "files" / "long.py") as started:
            yield started


@pytest.fixture(autouse=True)
def forget(service):
    """Start every test with an empty list of arrivals, and a service that is well."""
    service.reset()
    service.play()


def answered(service: Service) -> int:
    return sum(a.status == 200 for a in service.arrivals())


def half_way(service: Service) -> None:
    until(lambda: answered(service) >= ITEMS // 3, "a third of the answers")


def test_a_killed_task_goes_on_where_it_was_and_its_page_can_be_read_all_the_time(airflow, service):
    run = airflow.trigger("long")
    half_way(service)
    link = airflow.request("GET", f"{run.path}/taskInstances/dispatch/links")
    page = airflow.request("GET", link["extra_links"]["LLM batch report"])
    assert "Still running, as of" in page
    port = int(service.url.rpartition(":")[2].partition("/")[0])
    task = talking_to(port, airflow.processes[1])
    kill(task)
    paid = answered(service)
    instance = run.wait_for("dispatch", "success", "failed")
    assert instance["state"] == "success"
    assert instance["try_number"] == 2
    manifest = run.returned("dispatch")
    assert manifest["counts"] == {"ok": ITEMS}
    assert ITEMS // 3 - IN_FLIGHT <= manifest["resumed"] <= paid
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
    paid = answered(service)
    run.clear("dispatch")
    run.wait_for("dispatch", "success")
    manifest = run.returned("dispatch")
    assert manifest["counts"] == {"ok": ITEMS}
    assert paid - IN_FLIGHT <= manifest["resumed"] <= paid
    assert len(service.arrivals()) - ITEMS <= IN_FLIGHT


#: Ten minutes at sixty times their speed, and what the service says meanwhile.
AWAY_S = 10.0
AWAY = {"status": 429, "error": {"message": "come back later"}, "headers": {"retry-after": "8"}}


def test_a_stopped_run_goes_on_after_a_restart_of_airflow_and_a_kill_while_it_waits(airflow, service):
    run = airflow.trigger("long")
    half_way(service)
    stop = f"/llmbatch/api/v1/dags/long/runs/{run.run_id}/stop"
    airflow.request("POST", stop, {"why": "the prompt is wrong"})
    assert run.wait_for("dispatch", "failed", "up_for_retry", "success")["state"] == "failed"
    assert "stopped the run: the prompt is wrong." in run.log("dispatch", 1)
    paid = answered(service)
    assert run.returned("dispatch")["counts"] == {"ok": paid, "unsent": ITEMS - paid}

    airflow.end()
    airflow.start_all()
    until(airflow.answers, "the API server")
    assert airflow.request("GET", stop)["stop"]["why"] == "the prompt is wrong"
    service.play({"reply": AWAY})
    run.clear("dispatch")
    run.wait_for("dispatch", "deferred")
    airflow.request("PATCH", f"{run.path}/taskInstances/dispatch", {"new_state": "failed"})
    assert held(airflow) == 0

    service.play()
    run.clear("dispatch")
    run.wait_for("dispatch", "success")
    manifest = run.returned("dispatch")
    assert (manifest["counts"], manifest["resumed"]) == ({"ok": ITEMS}, paid)
    assert manifest["possible_double_paid"] == 0
    assert answered(service) == ITEMS
    assert airflow.request("GET", stop) == {"stop": None}


def test_while_the_service_is_away_no_worker_is_held_and_a_triggerer_that_was_killed_loses_nothing(
    airflow, service
):
    triggerer = airflow.start("triggerer")
    run = airflow.trigger("long")
    half_way(service)
    service.play({"match": {"until_s": AWAY_S}, "reply": AWAY})
    run.wait_for("dispatch", "deferred")
    pool = airflow.request("GET", "/api/v2/pools/default_pool")
    assert (pool["occupied_slots"], pool["deferred_slots"]) == (0, 1)
    assert held(airflow) == 0
    triggerer.kill()
    triggerer.wait()
    airflow.start("triggerer")
    assert run.wait_for("dispatch", "success", "failed")["try_number"] == 1
    manifest = run.returned("dispatch")
    assert manifest["counts"] == {"ok": ITEMS}
    assert manifest["possible_double_paid"] == 0
    assert answered(service) == ITEMS


def test_people_decide_and_the_task_goes_on_whatever_restarts_and_whoever_leaves(airflow, service):
    parked = "awaiting_input" if AIRFLOW_V_3_3_PLUS else "deferred"
    if not AIRFLOW_V_3_3_PLUS:
        airflow.start("triggerer")
    airflow.request("PATCH", "/api/v2/dags/reviewed", {"is_paused": False})
    service.play({"match": {"contains": "number 1"}, "reply": {"refusal": "No."}})
    run = airflow.trigger("reviewed")
    run.wait_for("review", parked)
    run.wait_for_exit("review", 1)
    assert airflow.request("GET", "/api/v2/pools/default_pool")["occupied_slots"] == 0
    asked = airflow.request("GET", f"{run.path}/hitlDetails?response_received=false")["hitl_details"]
    assert [one["subject"] for one in asked] == [parking.SUBJECT]
    queue = f"/llmbatch/api/v1/dags/reviewed/runs/{run.run_id.replace('+', '%2B')}/tasks/review/review"
    first = {"round": 1, "tickets": ["0-1"], "kind": "retry"}
    assert airflow.request("POST", f"{queue}/decisions", first)["resumed"] is False

    server = airflow.processes[0]
    for process in (*psutil.Process(server.pid).children(recursive=True), server):
        process.kill()
    server.wait()
    # It had stored these and not woken the task yet. The task looks for itself some day: today.
    place = review_folder(str(airflow.home / "llmbatch" / "results"), "reviewed", run.run_id, "review")
    stored = Queue(open_folder(place))
    stored.decide(1, ["0-10", "0-11"], Wish(kind="skip"), Person(id="1", name="ann"), at=time.time())
    airflow.processes[0] = airflow.start("api-server")
    airflow.processes.pop()
    until(airflow.answers, "the API server")
    if AIRFLOW_V_3_3_PLUS:
        let_time_pass(airflow)
    else:
        assert airflow.request("POST", f"{queue}/wake", {})["resumed"] is True
    until(lambda: airflow.request("GET", queue)["round"] == 2, "the second round")
    run.wait_for("review", parked)
    run.wait_for_exit("review", 2)

    service.play()
    last = {"round": 2, "tickets": ["0-1"], "kind": "retry"}

    def leaves_with_that_decided() -> bool:
        # A server that has not begun with a request drops it when nobody waits any more.
        with suppress(httpx.ReadTimeout):
            patience = httpx.Timeout(5, read=0.001)
            airflow.client.post(f"{airflow.url}{queue}/decisions", json=last, timeout=patience)
        now = airflow.request("GET", queue)
        return now["decided"] == 1 or now["round"] != 2 or now["state"] == "done"

    until(leaves_with_that_decided, "the decision")
    run.wait_for("review", "success", "failed")
    assert run.returned("review")["counts"] == {"ok": 10, "skipped": 2}
    assert answered(service) == 12 + 2
    assert airflow.request("GET", queue)["state"] == "done"


def let_time_pass(airflow: Installation) -> None:
    """Have Airflow take it that a parked task has waited until it wants to look for itself."""
    with closing(sqlite3.connect(airflow.home / "airflow.db", timeout=30)) as database:
        database.execute(
            "UPDATE task_instance SET trigger_timeout = '2000-01-01' WHERE state = 'awaiting_input'"
        )
        database.commit()


def held(airflow: Installation) -> int:
    """Return how many leases, reservations and claims the state holds for somebody."""
    with closing(sqlite3.connect(airflow.home / "llmbatch" / "state.db")) as connection:
        found = ("leases", "holds", "claims WHERE path IS NULL")
        return sum(connection.execute(f"SELECT count(*) FROM {rows}").fetchone()[0] for rows in found)
