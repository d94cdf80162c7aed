"""The DAG of the repository that waits for people, with people who decide through the API meanwhile."""

from __future__ import annotations

import _thread
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from airflow_provider_llmbatch.compat import AIRFLOW_V_3_3_PLUS
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results

pytestmark = pytest.mark.slow

API = "/llmbatch/api/v1"


@contextmanager
def people(api: Callable[..., Any], decide: Callable[[str, dict[str, Any]], None]) -> Iterator[None]:
    """Have somebody look into the list of queues all the time, and decide what is open there."""
    over, problems = threading.Event(), list[BaseException]()

    def look() -> None:
        while not over.wait(0.2):
            try:
                for queue in api(f"{API}/queues", "user").json()["queues"]:
                    if queue["decided"] < queue["tickets"]:
                        run = queue["run_id"].replace("+", "%2B")
                        path = f"{API}/dags/{queue['dag_id']}/runs/{run}/tasks/{queue['task_id']}/review"
                        decide(path, queue)
            except BaseException as error:
                problems.append(error)
                # The DAG would wait for ever.
                _thread.interrupt_main()
                return

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for problem in problems:
            raise problem


@pytest.fixture
def play(arrivals) -> Callable[..., None]:
    """Return a function that has the service of the default connection play other rules."""
    url = json.loads(os.environ["AIRFLOW_CONN_LLMBATCH_DEFAULT"])["host"].removesuffix("/v1")

    def _play(*rules: dict[str, Any]) -> None:
        httpx.post(f"{url}/_sim/scenario", json={"rules": rules}).raise_for_status()

    return _play


NO = {"refusal": "I would rather not."}
YES = {"match": {}, "reply": {"content": json.dumps({"topic": "weather", "confidence": 0.9})}}


@pytest.mark.skipif(
    not AIRFLOW_V_3_3_PLUS, reason="Airflow 3.2 asks people in a triggerer only: see test_real_airflow.py"
)
def test_what_failed_is_decided_by_people_and_recovered(run_dag, arrivals, api, play):
    """The last decision wakes the task, in one round after the other."""
    play({"match": {"every": 2}, "reply": NO}, YES)
    seen = []

    def decide(path: str, queue: dict[str, Any]) -> None:
        tickets = api(f"{path}/tickets?decision=open", "user").json()["tickets"]
        seen.append((queue["round"], len(tickets)))
        play({"match": {"nth": 1}, "reply": NO}, YES)
        wishes = [{"kind": "retry", "prompt": "conversation_topic@2"}] * 3
        wishes.append({"kind": "edit", "output": {"topic": "mine", "confidence": 1.0}})
        for ticket, wish in zip(tickets, wishes if queue["round"] == 1 else [{"kind": "skip"}], strict=True):
            content = {"round": queue["round"], "tickets": [ticket["id"]], **wish}
            answer = api(f"{path}/decisions", "user", "POST", content)
            assert answer.status_code == 200, answer.text
        # A double click on the last one.
        assert api(f"{path}/decisions", "user", "POST", content).json()["already"] == 1

    with people(api, decide):
        run = run_dag("review_and_recover.py", "review_and_recover", sample=8, uncertain=None)
    assert str(run.state) == "success"
    instance = run.get_task_instance("review")
    manifest = instance.xcom_pull(task_ids="review")
    assert manifest["counts"] == {"ok": 6, "edited": 1, "skipped": 1}
    rows = list(results(open_folder(manifest["result_path"])))
    assert Counter(row.outcome.value for row in rows) == Counter(manifest["counts"])
    again = [row for row in rows if row.round == 1 and row.outcome == "ok"]
    assert {str(row.prompt) for row in again} == {"conversation_topic@2"}
    assert seen == [(1, 4), (2, 1)]
    assert len(arrivals()) == 8 + 3
    link = instance.xcom_pull(task_ids="review", key="_link_LLMBatchReviewLink")
    assert link.endswith("/tasks/review/review")
    assert api(f"{API}/queues", "user").json()["total"] == 0
