"""The review operator called as Airflow calls it: when it waits, what ends its waiting, what then happens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from airflow.sdk import BaseNotifier
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_llmbatch.compat import AIRFLOW_V_3_3_PLUS
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.review.decision import Person, Wish
from airflow_provider_llmbatch.engine.review.inbox import Inbox
from airflow_provider_llmbatch.engine.review.queue import Queue
from airflow_provider_llmbatch.notifications.review import LLMBatchReviewNotifier
from airflow_provider_llmbatch.operators import parking
from airflow_provider_llmbatch.operators.review import LLMBatchReviewOperator
from airflow_provider_llmbatch.sensors.review import LLMBatchReviewSensor
from tests.operators.stage import PROMPT, Stage
from tests.services.webhooks import catching

# A library of Apprise's asks for it.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

ANN = Person(id="1", name="ann")
NO = {"match": {"contains": "number 1"}, "reply": {"refusal": "No."}}


class Parked(BaseException):
    """The task has left its worker."""


@pytest.fixture
def requests(monkeypatch) -> list[dict[str, Any]]:
    """Return the requests for people that tasks have written; there is no Airflow here to write them to."""
    written: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "airflow.sdk.execution_time.hitl.upsert_hitl_detail", lambda **request: written.append(request)
    )
    return written


@pytest.fixture
def dispatched(stage, service) -> dict[str, Any]:
    """Return the manifest of a dispatch of twelve items, three of which were refused."""
    service.play(NO)
    return stage.run(stage.dispatch(source=stage.items(12), max_failed=1.0))


@pytest.fixture
def review(stage, dispatched, requests) -> Callable[..., LLMBatchReviewOperator]:
    """Return a function that makes a review task of the dispatch."""

    def _review(**arguments: Any) -> LLMBatchReviewOperator:
        usual = {"task_id": "review", "dag": stage.dag(), "manifests": dispatched, "prompt": PROMPT}
        return LLMBatchReviewOperator(**{**usual, "retries": 1, **arguments})

    return _review


def wait(stage: Stage, task: LLMBatchReviewOperator, event: Any = None, **instance: Any) -> Any:
    """Run a task until it leaves its worker; return what it says to Airflow."""
    with pytest.raises(BaseException) as left:  # noqa: PT011
        stage.run(task, **instance) if event is None else resume(stage, task, event, **instance)
    assert type(left.value).__name__ in ("TaskAwaitingInput", "TaskDeferred"), left.value
    return left.value


def resume(stage: Stage, task: LLMBatchReviewOperator, event: Any, **instance: Any) -> Any:
    """Run a task from where it left, as a new process does."""
    context = stage.context(task, **instance)
    task.render_template_fields(context)
    return task.go_on(context, event)


def answered(option: str) -> dict[str, Any]:
    return {"chosen_options": [option], "params_input": {}, "timedout": False}


def queue_of(stage: Stage, run: str = "r") -> Queue:
    queue = Queue(open_folder(str(stage.results_path / "d" / run / "review" / "review"), read_only=True))
    queue.refresh()
    return queue


def decide(stage: Stage, kind: str, *indexes: int) -> None:
    queue = queue_of(stage)
    tickets = [f"0-{index}" for index in indexes] or [t.id for t in queue.round().open_tickets()]
    queue.decide(queue.round().number, tickets, Wish(kind=kind), ANN, at=time.time())


def test_a_task_waits_without_a_worker_and_goes_on_with_the_decisions(stage, review, requests, service):
    left = wait(stage, review())
    assert left.method_name == "go_on"
    assert type(left).__name__ == ("TaskAwaitingInput" if AIRFLOW_V_3_3_PLUS else "TaskDeferred")
    (request,) = requests
    assert request["subject"] == parking.SUBJECT
    assert "/llmbatch/dags/d/runs/r/tasks/review/review" in request["body"]
    (post,) = Inbox(open_folder(str(stage.results_path / "~queues"))).posts("open")
    assert (post.dag_id, post.task_id) == ("d", "review")
    decide(stage, "skip", 1)
    assert wait(stage, review(), answered(parking.LOOK)).method_name == "go_on"
    decide(stage, "retry")
    service.play()
    value = resume(stage, review(), answered(parking.LOOK))
    assert value["counts"] == {"ok": 11, "skipped": 1}
    assert queue_of(stage).done["manifests"] == [value]
    assert not Inbox(open_folder(str(stage.results_path / "~queues"))).posts("open")
    assert stage.run(review()) == value


def test_nothing_to_decide_ends_at_once(stage, review, requests):
    assert stage.run(review(review=["truncated"]))["counts"] == {"ok": 9, "refused": 3}
    assert not requests


def test_a_person_in_airflows_own_pages_need_not_wait_for_the_rest(stage, review):
    wait(stage, review())
    decide(stage, "skip", 1)
    value = resume(stage, review(), answered(parking.APPLY))
    assert value["counts"] == {"ok": 9, "skipped": 1, "refused": 2}
    assert queue_of(stage).round().closed_by == "person"


def test_a_quorum_is_enough_and_the_rest_gets_the_default(stage, review):
    wait(stage, review(quorum=0.6, default="skip"))
    decide(stage, "skip", 1, 10)
    value = resume(stage, review(quorum=0.6, default="skip"), answered(parking.LOOK))
    assert value["counts"] == {"ok": 9, "skipped": 3}
    assert queue_of(stage).round().closed_by == "quorum"


def test_at_the_deadline_the_rest_gets_the_default(stage, review):
    task = review(timeout=0.5, default="skip")
    left = wait(stage, task)
    assert left.timeout is None or left.timeout.total_seconds() <= 1.0
    time.sleep(0.5)
    assert resume(stage, task, answered(parking.LOOK))["counts"] == {"ok": 9, "skipped": 3}
    assert queue_of(stage).round().closed_by == "deadline"


def test_a_deadline_can_fail_the_task_and_clearing_it_asks_again(stage, review):
    task = review(timeout=0.3, default="fail")
    wait(stage, task)
    decide(stage, "skip", 1)
    time.sleep(0.3)
    with pytest.raises(AirflowFailException, match="2 of 3 items were not decided in time"):
        resume(stage, task, answered(parking.LOOK))
    wait(stage, review(), max_tries=3)
    rounds = queue_of(stage).rounds
    assert [round.size for round in rounds] == [3, 2]
    assert [row.outcome.value for row in stage.rows() if row.round] == ["skipped"]


@pytest.mark.parametrize("arguments", [{"timeout": 5}, {"quorum": 0.5}])
def test_what_happens_to_the_rest_has_to_be_said(stage, review, arguments):
    with pytest.raises(AirflowFailException, match="say what becomes of items that nobody has decided"):
        stage.run(review(**arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"review": ["ok"]}, "review is 'ok'"),
        ({"uncertain": "confidence <"}, "no CEL"),
        ({"sample": 2}, "sample is 2"),
        ({"default": "hope"}, "default is 'hope'"),
        ({"max_rounds": 0}, "max_rounds is 0"),
        ({"models": "['m-2']"}, "models is the text"),
        ({"prompt": {"system": "Another."}}, "answer another input"),
        ({"model": "m-9"}, "answer another input"),
        ({"manifests": []}, "no manifests"),
    ],
)
def test_arguments_that_cannot_work_are_refused_with_words(stage, review, requests, arguments, words):
    with pytest.raises(AirflowFailException, match=words):
        stage.run(review(**arguments))
    assert not requests


def test_a_decision_between_the_look_and_the_leaving_is_not_lost(stage, review, monkeypatch):
    """The last decision finds no request to answer yet; the task looks once more after it has written one."""

    def late(**request: Any) -> None:
        decide(stage, "skip")

    monkeypatch.setattr("airflow.sdk.execution_time.hitl.upsert_hitl_detail", late)
    assert stage.run(review())["counts"] == {"ok": 9, "skipped": 3}


def test_retries_that_have_to_wait_leave_the_worker_and_go_on(stage, review, service, monkeypatch):
    monkeypatch.setenv("AIRFLOW__LLMBATCH__DEFER_AFTER", "1")
    wait(stage, review())
    decide(stage, "retry")
    slow = {"status": 429, "headers": {"retry-after": "2"}, "error": {"message": "slow down"}}
    service.play({"match": {}, "reply": slow})
    left = wait(stage, review(), answered(parking.LOOK))
    assert type(left).__name__ == "TaskDeferred"
    assert "since" in left.kwargs
    service.play()
    time.sleep(2.0)
    assert resume(stage, review(), None)["counts"] == {"ok": 12}


def test_a_sensor_waits_for_the_review_of_another_dag(stage, review):
    sensor = LLMBatchReviewSensor(
        task_id="w", dag=stage.dag(), external_dag_id="d", external_task_id="review"
    )
    context = stage.context(sensor)
    sensor.render_template_fields(context)
    assert not sensor.poke(context).is_done
    wait(stage, review())
    assert not sensor.poke(context).is_done
    decide(stage, "skip")
    value = resume(stage, review(), answered(parking.LOOK))
    found = sensor.poke(context)
    assert found.is_done
    assert found.xcom_value == [value]
    assert sensor.reschedule


@pytest.fixture
def catcher() -> Iterator[tuple[str, list[Any]]]:
    """Run a server that takes webhooks; return its address and what it has got."""
    with catching() as found:
        yield found


def alerts(monkeypatch, **connection: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LLMBATCH_ALERTS", json.dumps({"conn_type": "generic", **connection}))


def test_people_are_told_once_for_each_round_with_a_link(stage, review, catcher, monkeypatch):
    pytest.importorskip("apprise")
    address, got = catcher
    alerts(monkeypatch, password=address)
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com/team")
    task = review(notifiers=LLMBatchReviewNotifier())
    wait(stage, task)
    wait(stage, task, answered(parking.LOOK))
    (message,) = got
    assert message["title"] == "3 items of d wait for a decision"
    assert "Run r, task review, round 1:\n3 refused.\n" in message["message"]
    assert "https://airflow.example.com/team/llmbatch/dags/d/runs/r/tasks/review/review" in message["message"]
    decide(stage, "retry")
    wait(stage, task, answered(parking.LOOK))
    assert [one["message"].splitlines()[0] for one in got[1:]] == ["Run r, task review, round 2:"]


def test_a_connection_of_airflows_apprise_provider_works_as_it_stands(stage, review, catcher, monkeypatch):
    pytest.importorskip("apprise")
    address, got = catcher
    config = [{"path": address, "tag": "people"}, {"path": address, "tag": "others"}]
    alerts(monkeypatch, conn_type="apprise", extra={"config": config})
    wait(stage, review(notifiers=LLMBatchReviewNotifier(title="T", body="B", tag="people")))
    assert [(one["title"], one["message"]) for one in got] == [("T", "B")]


class Broken(BaseNotifier):
    """Raises whatever it is asked."""

    def notify(self, context: Any) -> None:
        raise RuntimeError("no network")


@pytest.mark.parametrize(
    ("notifier", "connection"),
    [
        (Broken(), {}),
        (LLMBatchReviewNotifier(conn_id="nowhere"), {}),
        (LLMBatchReviewNotifier(), {"password": "json://127.0.0.1:9/hook"}),
        (LLMBatchReviewNotifier(), {"password": "gibberish"}),
        (LLMBatchReviewNotifier(body="{{ nothing.at.all }}"), {"password": "json://127.0.0.1:9/hook"}),
    ],
)
def test_an_alert_that_cannot_be_delivered_never_fails_the_task(
    stage, review, monkeypatch, notifier, connection
):
    alerts(monkeypatch, **connection)
    wait(stage, review(notifiers=[notifier]))
    decide(stage, "skip")
    assert resume(stage, review(), answered(parking.LOOK))["counts"] == {"ok": 9, "skipped": 3}
