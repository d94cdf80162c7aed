"""A function that yields items becomes a batch."""

from __future__ import annotations

import math

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_llmbatch.operators.llm_map import LLMBatchMapOperator
from tests.operators.stage import PROMPT


@pytest.fixture
def ask(stage):
    """Return a function that runs a function as a task."""

    def _ask(function, *, args=(), kwargs=None, instance=None, **arguments):
        task = LLMBatchMapOperator(
            **{
                "task_id": "t",
                "dag": stage.dag(),
                "prompt": PROMPT,
                "model": "m-1",
                "retries": 1,
                **arguments,
            },
            python_callable=function,
            op_args=args,
            op_kwargs=kwargs or {},
        )
        return stage.run(task, **(instance or {}))

    return _ask


def test_arguments_come_from_the_call_and_from_the_context(stage, ask):
    def items(first, *, second, params, run_id):
        yield {"vars": {"text": f"{first} {second} {params['five']} {run_id}"}, "metadata": first}

    ask(items, args=["{{ params.word }}"], kwargs={"second": "x"})
    assert [row.metadata for row in stage.rows()] == ["abc"]


def test_texts_are_prompts_as_they_stand(stage, ask):
    value = ask(lambda: ["{{ params.word }}", "plain"], prompt={"system": "Answer."})
    assert value["counts"] == {"ok": 2}


def test_a_retry_calls_the_function_again_and_pays_for_nothing_twice(stage, ask):
    ask(lambda: [{"vars": {"text": "a"}}, {"vars": {"text": "b"}}])
    value = ask(lambda: [{"vars": {"text": "a"}}, {"vars": {"text": "b"}}], instance={"try_number": 2})
    assert value["resumed"] == 2
    assert len(stage.service.arrivals()) == 2


def test_a_function_that_yields_other_items_in_the_second_try_is_found_out(stage, ask):
    ask(lambda: [{"vars": {"text": "a"}}])
    with pytest.raises(AirflowFailException, match=r"answer another input \(changed: rows or params\)"):
        ask(lambda: [{"vars": {"text": "b"}}], instance={"try_number": 2})
    assert len(stage.service.arrivals()) == 1


@pytest.mark.parametrize("returned", [None, "text", b"bytes", 7, {"prompt": "x"}])
def test_something_else_than_items_is_refused_by_the_functions_name(stage, ask, returned):
    def my_items():
        return returned

    with pytest.raises(
        AirflowFailException, match=f"my_items returned {type(returned).__name__}; yield items"
    ):
        ask(my_items)
    assert stage.service.arrivals() == []


@pytest.mark.parametrize("value", [math.nan, object(), {1, 2}])
def test_an_item_that_json_cannot_hold_is_named_by_its_number(stage, ask, value):
    with pytest.raises(AirflowFailException, match=r"Item 1 cannot be written as JSON: .*Use texts, numbers"):
        ask(lambda: [{"vars": {"text": "fine"}}, {"vars": {"text": value}}])
    assert stage.service.arrivals() == []


def test_a_function_that_yields_nothing_is_told_so(ask):
    with pytest.raises(AirflowFailException, match="is empty; was the task that writes it finished"):
        ask(lambda: iter(()))


def test_an_error_of_the_function_is_raised_as_it_is(stage, ask):
    def broken():
        yield {"vars": {"text": "a"}}
        raise LookupError("the database is away")

    with pytest.raises(LookupError, match="the database is away"):
        ask(broken)
    assert stage.service.arrivals() == []
