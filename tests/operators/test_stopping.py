"""A run that somebody stops ends in good order, and goes on when one of its tasks is cleared."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.operators.stopping import let_go_on, stop_of, stop_run
from tests.operators.test_deferral import go_on
from tests.operators.test_kill import until
from tests.services.redis_server import running

ITEMS = 24
RUN = ("d", "r")


@pytest.fixture
def slow(stage, simulate, connect):
    """Return a stage whose service takes a third of a second for each of two calls at a time."""
    stage.service = simulate(latency_s=0.3)
    connect(stage.service.url, max_in_flight=2)
    return stage


@pytest.fixture
def redis(tmp_path, monkeypatch):
    """Keep the state in Redis."""
    with running(tmp_path / "redis") as server:
        monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", server.url)
        yield server


def stopped_half_way(stage, **arguments) -> tuple[BaseException, Manifest]:
    """Run a task, stop its run half way, and return what it raised and the manifest it left."""
    task, raised = stage.dispatch(source=stage.items(ITEMS), retries=3, **arguments), []

    def execute() -> None:
        try:
            stage.run(task, max_tries=3)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    until(lambda: len(stage.service.arrivals()) >= 6)
    began = time.monotonic()
    stop_run(*RUN, by="ann", why="the  prompt\nis wrong.")
    thread.join(20)
    assert time.monotonic() - began < 2 + 1
    (error,) = raised
    return error, Manifest.from_json(stage.instance.xcoms["return_value"])


def test_a_stopped_run_keeps_what_it_has_paid_for_and_goes_on_when_its_task_is_cleared(slow):
    error, manifest = stopped_half_way(slow)
    sent = len(slow.service.arrivals())
    assert isinstance(error, AirflowFailException)
    assert "ann stopped the run: the prompt is wrong." in str(error)
    assert "clear the task to go on" in str(error)
    assert (manifest.state, manifest.counts) == ("stopped", {"ok": sent, "unsent": ITEMS - sent})
    assert manifest.possible_double_paid == 0
    assert stop_of(*RUN).by == "ann"

    value = slow.run(slow.dispatch(source=slow.items(ITEMS)), try_number=2, max_tries=4)
    assert (value["counts"], value["resumed"]) == ({"ok": ITEMS}, sent)
    assert len(slow.service.arrivals()) == ITEMS
    assert stop_of(*RUN) is None


@pytest.mark.parametrize("state", ["sqlite", "redis"])
def test_a_task_that_starts_in_a_stopped_run_sends_nothing(stage, request, state):
    if state == "redis":
        request.getfixturevalue("redis")
    stop_run(*RUN, by="ann")
    for _ in range(2):
        with pytest.raises(AirflowFailException, match=r"ann stopped the run\. So far: 3 unsent"):
            stage.run(stage.dispatch(source=stage.items(3)))
    assert stage.service.arrivals() == []
    let_go_on(*RUN)
    assert stage.run(stage.dispatch(source=stage.items(3)))["counts"] == {"ok": 3}


def test_a_second_run_into_the_same_folder_goes_on(stage):
    place = {"result_path": str(stage.folder / "shared"), "source": stage.items(3)}
    stop_run(*RUN, by="ann")
    with pytest.raises(AirflowFailException):
        stage.run(stage.dispatch(**place))
    assert stage.run(stage.dispatch(**place), run_id="another")["counts"] == {"ok": 3}


@pytest.fixture
def asked_to_wait(stage, connect, monkeypatch):
    """Return a stage whose service answers five items, and then asks everybody for half a minute."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__DEFER_AFTER", "2")
    wait = {"status": 429, "error": {"message": "slow down"}, "headers": {"retry-after": "30"}}
    stage.service.play({"match": {"contains": "number 5"}, "reply": wait})
    connect(stage.service.url, max_in_flight=1)
    return stage


def test_a_deferred_task_holds_nothing_and_heeds_the_stop_when_it_comes_back(asked_to_wait):
    stage, source = asked_to_wait, asked_to_wait.items(8)
    with pytest.raises(TaskDeferred) as left:
        stage.run(stage.dispatch(source=source, reuse=True))
    sent = len(stage.service.arrivals())
    assert held(stage) == {"leases": 0, "holds": 0, "turns": 0, "claims": 0, "answers": 5}
    stop_run(*RUN, by="ann", why="enough")
    with pytest.raises(AirflowFailException, match="ann stopped the run: enough"):
        go_on(stage, stage.dispatch(source=source), left.value)
    assert len(stage.service.arrivals()) == sent == 6


def held(stage) -> dict[str, int]:
    """Return what the state holds for whoever was there, and the answers that are kept for all."""
    queries = {
        "leases": "SELECT count(*) FROM leases",
        "holds": "SELECT count(*) FROM holds",
        "turns": f"SELECT count(*) FROM turns WHERE kept_until > {time.time()}",
        "claims": "SELECT count(*) FROM claims WHERE path IS NULL",
        "answers": "SELECT count(*) FROM claims WHERE path IS NOT NULL",
    }
    with closing(sqlite3.connect(stage.folder / "state.db")) as state:
        return {name: state.execute(query).fetchone()[0] for name, query in queries.items()}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"by": " "}, "by is empty; say who stops the run"),
        ({"by": "a" * 101}, "by has 101 characters; 100 are the most"),
        ({"by": "ann", "why": "a" * 201}, "why has 201 characters; 200 are the most"),
    ],
)
def test_a_stop_says_who_wants_it_in_a_few_words(stage, said, words):
    with pytest.raises(ConfigurationError, match=words):
        stop_run(*RUN, **said)
    assert stop_of(*RUN) is None
