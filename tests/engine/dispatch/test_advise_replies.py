"""What to do about replies that are whole, cut, refused or filtered."""

from __future__ import annotations

import pytest

from airflow_provider_llmbatch.engine.dispatch.advise import History
from airflow_provider_llmbatch.engine.exchange import Enlarge, Failure, Reply
from airflow_provider_llmbatch.engine.items import Outcome, Usage
from tests.engine.dispatch.advising import advised, final, http, reply


@pytest.mark.parametrize(
    "seen",
    [
        http(400, code="content_filter"),
        http(400, code="ResponsibleAIPolicyViolation"),
        http(400, type="content_policy_violation"),
        reply(text=None, finish_reason="content_filter"),
    ],
)
def test_a_filter_is_final(seen: Reply | Failure):
    """P40."""
    assert final(advised(seen)) == (Outcome.CONTENT_FILTERED, "content_filter")


def test_a_refusal_is_final():
    assert final(advised(reply(text=None, refusal="I can't."))) == (Outcome.REFUSED, "refusal")


@pytest.mark.parametrize("reason", ["length", "max_tokens"])
def test_a_cut_reply_is_asked_for_once_more_with_a_larger_cap(reason: str):
    """P43."""
    cut = reply(text='{"city":"Oslo","tags":["fjord","ski', finish_reason=reason)
    advice = advised(cut)
    assert isinstance(advice, Enlarge)
    assert final(advice.otherwise) == (Outcome.TRUNCATED, "truncated")
    enlarged = History(tries=1, max_tries=5, enlarged=True)
    assert final(advised(cut, enlarged)) == (Outcome.TRUNCATED, "truncated")


@pytest.mark.parametrize("thought", [1, 512])
def test_a_cap_spent_on_reasoning_is_named_as_such(thought: int):
    """P45."""
    spent = Usage(prompt=10, completion=512, reasoning=thought)
    advice = advised(reply(text=None, finish_reason="length", usage=spent))
    assert isinstance(advice, Enlarge)
    assert final(advice.otherwise) == (Outcome.TRUNCATED, "truncated_by_reasoning")
    assert f"{thought} tokens of reasoning" in advice.otherwise.error.message


@pytest.mark.parametrize(
    ("text", "usage"),
    [
        ("half", Usage(prompt=10, completion=512, reasoning=500)),
        (None, Usage(prompt=10, completion=512)),
        (None, None),
    ],
)
def test_a_cap_spent_on_an_answer_or_on_nothing_known_is_just_spent(text: str | None, usage: Usage | None):
    """P45."""
    advice = advised(reply(text=text, finish_reason="length", usage=usage))
    assert isinstance(advice, Enlarge)
    assert advice.otherwise.error.kind == "truncated"


def test_a_complete_reply_needs_no_advice():
    assert advised(reply()) is None
    assert advised(reply(finish_reason=None)) is None
