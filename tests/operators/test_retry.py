"""The policy about retries, asked as Airflow asks it."""

from __future__ import annotations

import copy
from datetime import timedelta

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from airflow_provider_llmbatch.compat import AIRFLOW_V_3_3_PLUS
from airflow_provider_llmbatch.errors import (
    ConfigurationError,
    EndpointError,
    InputError,
    StaleFenceError,
    StateUnreachableError,
    StoppedError,
    StoreError,
)
from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator
from airflow_provider_llmbatch.operators.retry import LLMBatchRetryPolicy

pytestmark = pytest.mark.skipif(not AIRFLOW_V_3_3_PLUS, reason="Airflow asks a policy from 3.3 on")

AWAY = {"status": 503, "error": {"message": "overloaded", "type": "server_error"}}


def asked(error: BaseException, try_number: int = 1, *, luck: float = 0.0, **arguments):
    return LLMBatchRetryPolicy(luck=lambda: luck, **arguments).evaluate(error, try_number, 3)


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("wrong argument"),
        InputError("the plan was made for another prompt"),
        StaleFenceError("replaced"),
        StoppedError("unknown model", retryable=False),
        AirflowNotFoundException("The conn_id `x` isn't defined"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_retry_cannot_help_fails_at_once(error):
    decision = asked(error)
    assert decision.action.value == "fail"
    assert decision.reason == f"{type(error).__name__}: another try would end alike."


def test_a_cause_counts_like_the_error_itself():
    error = AirflowException("wrapped")
    error.__cause__ = InputError("no items")
    assert asked(error).action.value == "fail"


def test_a_limit_that_says_when_it_ends_is_waited_for():
    decision = asked(StoppedError("the budget of this day", retryable=True, retry_after_s=7200.0), luck=1.0)
    assert decision.action.value == "retry"
    assert decision.retry_delay == timedelta(hours=2, minutes=12)


@pytest.mark.parametrize(
    "error",
    [EndpointError("8 of 10 failed"), StateUnreachableError("Redis"), StoppedError("x", retryable=True)],
)
def test_an_outage_is_waited_for_longer_from_try_to_try(error):
    waits = [asked(error, number).retry_delay.total_seconds() for number in (1, 2, 3, 4, 5, 99)]
    assert waits == [60, 120, 240, 480, 900, 900]
    short = {"delay": timedelta(seconds=1), "longest": timedelta(seconds=3)}
    assert [asked(error, number, **short).retry_delay.total_seconds() for number in (1, 2, 3)] == [1, 2, 3]


@pytest.mark.parametrize("error", [StoreError("disk full"), KeyError("x"), TimeoutError()])
def test_anything_else_is_left_to_the_task(error):
    assert asked(error).action.value == "default"


def test_no_operator_is_tried_again_in_vain_or_too_soon(stage):
    """What the operators raise is what Airflow never retries, or what the policy has a delay for."""
    with pytest.raises(AirflowFailException):
        stage.run(stage.dispatch(source=stage.items(2), llm_conn_id="nowhere"))
    stage.service.play({"reply": {"status": 404, "error": {"message": "no such model"}}})
    with pytest.raises(AirflowFailException):
        stage.run(stage.dispatch(source=stage.items(2)))
    stage.service.play({"reply": AWAY})
    with pytest.raises(EndpointError) as away:
        stage.run(stage.dispatch(source=stage.items(2, "other.jsonl"), task_id="u", max_attempts=1))
    assert asked(away.value).retry_delay == timedelta(minutes=1)


def test_it_reads_the_same_from_parse_to_parse_and_survives_a_copy():
    policy = LLMBatchRetryPolicy(delay=timedelta(seconds=5))
    assert repr(policy) == repr(copy.deepcopy(LLMBatchRetryPolicy(delay=timedelta(seconds=5))))
    again = LLMBatchRetryPolicy.deserialize(policy.serialize())
    assert (again.delay, again.longest) == (policy.delay, policy.longest)


def test_airflow_takes_it_from_default_args_and_for_mapped_tasks():
    policy = LLMBatchRetryPolicy()
    with DAG("d", schedule=None, default_args={"retries": 3, "retry_policy": policy}) as dag:
        single = LLMBatchDispatchOperator(task_id="single", prompt="p@1", source="x")
        LLMBatchDispatchOperator.partial(task_id="mapped", prompt="p@1").expand(source=["x"])
    assert single.retry_policy is policy
    assert dag.get_task("mapped").retry_policy is policy
