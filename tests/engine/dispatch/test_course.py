"""What an item's way so far says about the next call and about its row."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_llmbatch.engine.dispatch.course import Course
from airflow_provider_llmbatch.engine.exchange import Final, Reply, Rewrite
from airflow_provider_llmbatch.engine.items import ItemError, Outcome, PromptRef, Request, RunRef, Usage
from tests.engine.dispatch.courses import course_of


def course(**params: Any) -> Course:
    request = Request(
        index=3,
        id="i3",
        model="m",
        messages=[{"role": "user", "content": "hello"}],
        params=params,
        prompt=PromptRef(name="p", version="1", sha="0" * 64),
        prompt_tokens=100,
        output_tokens=50,
        metadata={"a": 1},
    )
    return course_of(request, ready_at=1000.0, started_at=1_800_000_000.0)


def test_a_dropped_parameter_is_gone_and_a_renamed_one_keeps_its_value():
    way = course(max_tokens=50, temperature=0)
    way.rewrite(Rewrite(drop="max_tokens", rename_to="max_completion_tokens"))
    way.rewrite(Rewrite(drop="temperature"))
    assert way.params == {"max_completion_tokens": 50}
    assert way.history(1000.0, 5, 60.0, 0.5).dropped == {"max_tokens", "temperature"}


def test_what_others_learn_while_an_item_waits_reaches_it():
    """P38."""
    learnt: list[Rewrite] = []
    way = course(temperature=0)
    way.lane.learnt = learnt
    way.follow()
    assert way.params == {"temperature": 0}
    learnt.append(Rewrite(drop="temperature"))
    way.follow()
    assert way.params == {}


def test_a_parameter_that_is_not_there_is_not_made_up():
    way = course()
    way.rewrite(Rewrite(drop="max_tokens", rename_to="max_completion_tokens"))
    assert way.params == {}
    assert way.dropped == set()


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_enlarging_doubles_the_cap_and_what_is_reserved(name: str):
    """P43."""
    way = course(**{name: 50})
    assert way.enlarge(None)
    assert (way.params[name], way.output_tokens, way.tokens, way.enlarged) == (100, 100, 200, True)


def test_enlarging_stays_within_the_models_window():
    way = course(max_tokens=50)
    assert way.enlarge(180)
    assert way.params == {"max_tokens": 80}
    assert not course(max_tokens=50).enlarge(150)
    assert not course().enlarge(None)


def test_asking_again_counts_as_a_try_and_reserves_the_longer_conversation():
    way = course()
    way.repair([{"role": "user", "content": "again"}], 30)
    assert (way.tokens, way.tries, way.repairs) == (180, 1, 1)
    way.repair([{"role": "user", "content": "and again"}], 40)
    assert way.tokens == 190


def test_waiting_is_the_time_outside_of_calls():
    way = course()
    way.calling_s = 20.0
    history = way.history(1050.0, 5, 60.0, 0.5)
    assert (history.waited_s, history.tries) == (30.0, 1)


def test_a_row_tells_the_whole_way():
    way = course()
    way.calls, way.call_s, way.calling_s = 3, 2.0, 5.0
    way.usage = Usage(prompt=300, completion=10)
    reply = Reply(
        text="I can't", refusal=None, finish_reason="stop", usage=None, model="m-1", request_id="r1"
    )
    final = Final(outcome=Outcome.REFUSED, error=ItemError(kind="refusal", message="no"))
    row = way.ended(final, reply, now=1010.0, run=RunRef(dag="d"), endpoint="https://h/v1", credential="k1")
    assert (row.outcome, row.raw_output, row.served_model, row.request_id) == (
        Outcome.REFUSED,
        "I can't",
        "m-1",
        "r1",
    )
    assert (row.attempts, row.call_ms, row.queue_ms) == (3, 2000.0, 5000.0)
    assert (row.usage.total, row.metadata, row.run.dag, row.credential) == (310, {"a": 1}, "d", "k1")
