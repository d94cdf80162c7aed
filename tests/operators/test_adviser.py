"""The adviser of a fusion asks once, through the engine that asks everybody, and is never waited for long."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from airflow_provider_llmbatch.engine.fusion.adviser import choose
from airflow_provider_llmbatch.engine.fusion.hardware import DeviceFacts, plans
from airflow_provider_llmbatch.engine.fusion.schema import read_schema
from airflow_provider_llmbatch.operators import adviser as asking
from airflow_provider_llmbatch.operators.adviser import Adviser
from airflow_provider_llmbatch.settings import load_settings

PLANS = plans(DeviceFacts(kind="cuda", name="H200", capability=(9, 0), memory_gib=141, cores=16))
SCHEMA = read_schema({"ct": {"kind": "ct"}})


@pytest.fixture
def adviser(stage, service, connect):
    connect(service.url, model="m-1")
    log = logging.getLogger("adviser")
    context = stage.context(stage.dispatch(task_id="f", source=[]))
    return lambda conn_id="llmbatch_default": Adviser(
        conn_id, str(stage.results_path / "f"), context, load_settings(), log
    )


def chosen(adviser: Adviser):
    found = choose(PLANS, SCHEMA, {"1": 40}, adviser)
    return found.index, found.problem


def test_the_plan_it_names_is_taken_and_a_retry_does_not_ask_again(adviser, service):
    service.play({"reply": {"content": '{"plan": 2}'}})
    assert chosen(adviser()) == (2, None)
    assert chosen(adviser()) == (2, None)
    assert len(service.arrivals()) == 1


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ({"content": "Plan 2, I should say."}, "the answer is no number of a plan"),
        ({"content": '{"plan": 77}'}, "the answer is no number of a plan"),
        ({"status": 400, "error": {"message": "no"}}, "the answer is no number of a plan"),
        ({"status": 401, "error": {"code": "invalid_api_key"}}, "the answer is no number of a plan"),
    ],
)
def test_whatever_else_it_answers_the_usual_plan_is_taken(adviser, service, reply, problem):
    service.play({"reply": reply})
    assert chosen(adviser()) == (0, problem)


def test_a_connection_that_is_not_there_changes_nothing(adviser):
    assert chosen(adviser("nowhere")) == (0, "asking failed (AirflowNotFoundException)")


def test_who_is_slow_is_not_waited_for(adviser, service, monkeypatch):
    monkeypatch.setattr(asking, "TIMEOUT_S", 0.5)
    service.play({"reply": {"delay_s": 20}})
    began = time.monotonic()
    assert chosen(adviser()) == (0, "asking failed (TimeoutError)")
    assert time.monotonic() - began < 10


def test_a_task_that_is_killed_does_not_wait_for_an_answer(adviser, service):
    service.play({"reply": {"delay_s": 20}})
    one = adviser()
    threading.Timer(0.5, one.cancel).start()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        one({"plans": []})
    assert time.monotonic() - began < 10
