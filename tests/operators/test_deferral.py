"""A task that can send nothing for a while leaves its worker, and goes on where it was."""

from __future__ import annotations

import contextvars
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.errors import StoppedError
from airflow_provider_llmbatch.operators.deferral import defer
from airflow_provider_llmbatch.simulator.settings import SimulatedKey


@pytest.fixture
def patient(monkeypatch) -> None:
    monkeypatch.setenv("AIRFLOW__LLMBATCH__DEFER_AFTER", "2")


def go_on(stage, task: Any, deferred: TaskDeferred) -> Any:
    """Resume as a new process does: with a new task and what the deferral has kept."""
    context = stage.context(task)
    inside = contextvars.copy_context()
    inside.run(ExecutorSafeguard.tracker.set, task)
    return inside.run(getattr(task, deferred.method_name), context, event=None, **(deferred.kwargs or {}))


def limited(connect, url: str) -> None:
    connect(url, requests_per_minute=5, window_s=9.0, arrival_slack=0.2, burst_seconds=9)


def test_a_task_over_its_limit_leaves_its_worker_and_goes_on_with_what_is_left(
    stage, connect, simulate, patient
):
    service = simulate(rpm=5, window_s=9.0)
    limited(connect, service.url)
    with pytest.raises(TaskDeferred) as left:
        stage.run(stage.dispatch(source=stage.items(8)))
    sent = len(service.arrivals())
    until = left.value.trigger.moment.timestamp() - time.time()
    time.sleep(max(0.0, until))
    value = go_on(stage, stage.dispatch(source=stage.items(8)), left.value)
    assert 5 <= sent < 8
    assert 0 < until < 12
    assert value["counts"] == {"ok": 8}
    assert value["resumed"] == sent
    assert [a.status for a in service.arrivals()] == [200] * 8


def test_while_every_key_is_told_to_wait_the_task_leaves_its_worker_and_no_item_fails(
    stage, connect, simulate, patient
):
    """P24."""
    error = {"message": "No deployments available. Try again in 40 seconds.", "type": "None", "code": "429"}
    keys = tuple(SimulatedKey(id=name, key=f"sk-{name}", account=name) for name in "ab")
    service = simulate({"match": {}, "reply": {"status": 429, "error": error}}, keys=keys)
    connect(service.url, key="sk-a", max_in_flight=1, credentials=[{"api_key": "sk-b", "id": "b"}])
    before = time.time()
    with pytest.raises(TaskDeferred) as left:
        stage.run(stage.dispatch(source=stage.items(8)))
    assert 38 < left.value.trigger.moment.timestamp() - before < 90
    assert sorted(arrival.credential for arrival in service.arrivals()) == ["a", "b"]
    assert {row.outcome for row in stage.rows()} == {Outcome.UNSENT}


def test_an_event_that_comes_twice_changes_nothing(stage):
    """P80."""
    task = stage.dispatch(source=stage.items(3))
    stage.run(task)
    again = TaskDeferred(trigger=None, method_name="go_on", kwargs={"since": time.time()})
    value = go_on(stage, stage.dispatch(source=stage.items(3)), again)
    assert (value["counts"], value["resumed"]) == ({"ok": 3}, 3)
    assert len(stage.service.arrivals()) == 3


def test_a_decorated_function_is_not_called_again(stage, connect, simulate, patient):
    from airflow_provider_llmbatch.operators.llm_map import LLMBatchMapOperator

    service, calls = simulate(rpm=5, window_s=9.0), []
    limited(connect, service.url)

    def items():
        calls.append(1)
        yield from (f"text {n}" for n in range(7))

    def made() -> LLMBatchMapOperator:
        return LLMBatchMapOperator(
            task_id="t", dag=stage.dag(), python_callable=items, prompt={"system": "x"}, model="m", retries=1
        )

    with pytest.raises(TaskDeferred) as left:
        stage.run(made())
    time.sleep(max(0.0, left.value.trigger.moment.timestamp() - time.time()))
    value = go_on(stage, made(), left.value)
    assert value["counts"] == {"ok": 7}
    assert calls == [1]


def test_after_max_runtime_the_task_goes_on_in_a_new_process_at_once(stage, connect, simulate):
    service = simulate(latency_s=3.0)
    connect(service.url, max_in_flight=1)
    with pytest.raises(TaskDeferred) as left:
        stage.run(stage.dispatch(source=stage.items(9), max_runtime="4"))
    assert left.value.trigger.moment - datetime.now(UTC) < timedelta(seconds=2)
    assert 1 <= len(service.arrivals()) <= 3


def test_a_task_that_may_not_defer_waits_in_its_worker(stage, connect, simulate, patient):
    service = simulate(rpm=5, window_s=6.0)
    connect(service.url, requests_per_minute=5, window_s=6.0, arrival_slack=0.2, burst_seconds=6)
    value = stage.run(stage.dispatch(source=stage.items(7), deferrable="False"))
    assert value["counts"] == {"ok": 7}


def test_a_budget_of_the_day_that_is_spent_defers_to_the_next_day(stage, connect, service):
    budget = [{"name": "team", "per": "day", "usd": 0.00002}]
    prices = {"m-1": {"input": "1", "output": "1"}}
    connect(service.url, budgets=budget, prices=prices, max_in_flight=1)
    with pytest.raises(StoppedError, match=r"of this day is spent.*max_wait"):
        stage.run(stage.dispatch(source=stage.items(9), model_params={"max_tokens": 5}, max_wait="0.5"))
    with pytest.raises(TaskDeferred) as left:
        stage.run(stage.dispatch(source=stage.items(9), model_params={"max_tokens": 5}, max_wait="200000"))
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    assert midnight <= left.value.trigger.moment


def test_a_deferral_waits_no_longer_in_all_than_max_wait(stage):
    why = StoppedError("Nothing can be sent.", retryable=True, retry_after_s=50.0)
    with pytest.raises(StoppedError, match="It has waited 960 s, and max_wait is 1000"):
        defer(stage.dispatch(source="x"), why, since=40.0, now=1000.0, max_wait_s=1000.0)
    with pytest.raises(TaskDeferred):
        defer(stage.dispatch(source="x"), why, since=900.0, now=1000.0, max_wait_s=1000.0)


def test_a_max_runtime_that_is_no_number_is_refused(stage):
    with pytest.raises(AirflowFailException, match="max_runtime is 'long'"):
        stage.run(stage.dispatch(source=stage.items(1), max_runtime="long"))
