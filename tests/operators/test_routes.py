"""The routes of a task: checked where a DAG is parsed, and used where it runs."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.operators.routing import known, pin
from tests.operators.stage import KEY

REVOKED = {"match": {}, "reply": {"status": 401, "error": {"code": "invalid_api_key", "message": "revoked"}}}


@pytest.mark.parametrize(
    ("routes", "complaint"),
    [
        ("llm_a", "give a mapping with 'endpoints' and 'rules', or a list of connection ids"),
        ({"endpoints": {}}, "name no endpoint"),
        ({"endpoint": {"a": "llm_a"}}, "has 'endpoint'; it may have endpoints, rules, sticky"),
        ({"endpoints": {"a": {"connection": "llm_a"}}}, "Endpoint 'a' of the routes"),
        ({"endpoints": {"a": "x"}, "rules": [{"if": "status ==", "use": "a"}]}, "is no CEL"),
        (
            {"endpoints": {"a": "x"}, "rules": [{"if": "true", "use": "b"}]},
            "which is no endpoint; there are a",
        ),
        ({"endpoints": {"a": "x"}, "sticky": "yes"}, "set it to True or False"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_where_the_dag_is_parsed(stage, routes: Any, complaint: str):
    with pytest.raises(ConfigurationError, match=complaint):
        stage.dispatch(routes=routes)


def test_items_go_where_the_rules_say_with_the_model_that_the_endpoint_names(stage, simulate, monkeypatch):
    other = simulate()
    monkeypatch.setenv(
        "AIRFLOW_CONN_OTHER", json.dumps({"conn_type": "llmbatch", "host": other.url, "password": KEY})
    )
    rows = [{"id": str(n), "prompt": "word " * (5 if n % 2 else 700)} for n in range(6)]
    routes = {
        "endpoints": {"small": "llmbatch_default", "large": {"llm_conn_id": "other", "model": "m-2"}},
        "rules": [{"if": "prompt_tokens > 512", "use": "large"}],
    }
    manifest = stage.run(stage.dispatch(source=rows, routes=routes))
    assert manifest["counts"] == {"ok": 6}
    assert [a.model for a in stage.service.arrivals()] == ["m-1"] * 3
    assert [a.model for a in other.arrivals()] == ["m-2"] * 3


def test_connections_in_a_list_stand_in_for_each_other(stage, simulate, monkeypatch):
    other = simulate()
    monkeypatch.setenv(
        "AIRFLOW_CONN_OTHER", json.dumps({"conn_type": "llmbatch", "host": other.url, "password": KEY})
    )
    stage.service.play(REVOKED)
    task = stage.dispatch(source=stage.items(5), routes=["llmbatch_default", "other"])
    assert stage.run(task)["counts"] == {"ok": 5}
    assert len(other.arrivals()) == 5


def test_a_task_sends_all_to_the_endpoint_that_a_person_has_pinned(stage, simulate, monkeypatch):
    other = simulate()
    monkeypatch.setenv(
        "AIRFLOW_CONN_OTHER", json.dumps({"conn_type": "llmbatch", "host": other.url, "password": KEY})
    )
    routes = ["llmbatch_default", "other"]
    assert stage.run(stage.dispatch(source=stage.items(2), routes=routes))["counts"] == {"ok": 2}
    (unused,) = [one.condition.gate for one in known() if other.url in one.condition.gate]
    pin(unused, by="ann")
    manifest = stage.run(stage.dispatch(task_id="again", source=stage.items(3), routes=routes))
    assert manifest["counts"] == {"ok": 3}
    assert (len(stage.service.arrivals()), len(other.arrivals())) == (2, 3)


def test_a_key_that_is_rotated_while_a_task_runs_is_read_again(stage, connect):
    """The revoked key is met in the first call; when it is answered the connection holds the new one."""
    stage.service.play({"match": {"first": 1}, "reply": {**REVOKED["reply"], "delay_s": 1.0}})

    def rotate() -> None:
        while not stage.service.arrivals():
            time.sleep(0.05)
        connect(stage.service.url, key="sk-rotated-0123456789")

    rotating = threading.Thread(target=rotate)
    rotating.start()
    assert stage.run(stage.dispatch(source=stage.items(5)))["counts"] == {"ok": 5}
    rotating.join()
    first, *rest = stage.service.arrivals()
    assert len(rest) == 5
    assert {arrival.credential for arrival in rest}.isdisjoint({first.credential})
