"""What comes of the bodies of services that are not OpenAI, and of each dialect's own fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.dispatch.advise import History, advise
from airflow_provider_llmbatch.engine.dispatch.wire import chat
from airflow_provider_llmbatch.engine.exchange import (
    Failure,
    Final,
    OtherCredential,
    Reply,
    Retry,
    Rewrite,
    Stop,
)
from airflow_provider_llmbatch.engine.items import Outcome, Usage
from tests.engine.dispatch.dialect_bodies import (
    AGAIN,
    CHECKS,
    FILTERED,
    KEYS,
    REWRITES,
    STOPS,
    THROTTLED,
    TOO_LONG,
    bare,
)
from tests.engine.dispatch.wire_bodies import completion

NOW = 1_795_953_600.0
HISTORY = History(
    tries=1, max_tries=5, throttled=1, params=frozenset({"max_completion_tokens", "top_k", "response_format"})
)


def read(status: int, body: Any) -> Reply | Failure:
    return chat.decode(status, {}, json.dumps(body).encode())


def advised(status: int, body: Any) -> Any:
    seen = read(status, body)
    assert isinstance(seen, Failure)
    assert (seen.kind, seen.status) == ("http", status)
    assert seen.code not in (str(status), "None")
    assert seen.param != "None"
    return advise(seen, {}, HISTORY, NOW)


def titled(rows: list[Any]) -> Any:
    return pytest.mark.parametrize("row", rows, ids=[row[0] for row in rows])


@titled(TOO_LONG)
def test_a_prompt_that_does_not_fit_is_too_long(row: Any):
    advice = advised(*row[1:])
    assert isinstance(advice, Final)
    assert advice.outcome is Outcome.TOO_LONG


@titled(STOPS)
def test_a_model_that_is_not_there_stops_the_run_with_the_services_words(row: Any):
    advice = advised(*row[1:])
    assert isinstance(advice, Stop)
    assert advice.reason.startswith(f"HTTP {row[1]}: ")
    assert "{" not in advice.reason


@titled(KEYS)
def test_a_key_that_is_refused_asks_for_another(row: Any):
    assert isinstance(advised(*row[1:]), OtherCredential)


@titled(THROTTLED)
def test_throttling_is_waited_out_as_the_words_say(row: Any):
    _, status, body, wait = row
    advice = advised(status, body)
    assert isinstance(advice, Retry)
    assert (advice.shared, advice.uses_try) == (True, False)
    assert advice.delay_s > 0
    assert wait is None or advice.delay_s == wait


@titled(AGAIN)
def test_trouble_of_the_service_is_tried_again(row: Any):
    advice = advised(*row[1:])
    assert isinstance(advice, Retry)
    assert (advice.shared, advice.uses_try) == (False, True)


@titled(REWRITES)
def test_a_parameter_that_is_unknown_there_is_rewritten(row: Any):
    """P38."""
    _, status, body, name = row
    advice = advised(status, body)
    assert isinstance(advice, Rewrite)
    assert advice.drop == name
    assert advice.rename_to == ("max_tokens" if name == "max_completion_tokens" else None)


@titled(CHECKS)
def test_a_check_that_is_not_passed_is_a_bad_request_in_short_words_without_what_was_sent(row: Any):
    advice = advised(*row[1:])
    assert isinstance(advice, Final)
    assert advice.outcome is Outcome.BAD_REQUEST
    assert advice.error.message == f"HTTP {row[1]}: temperature: Input should be a valid number"


@titled(FILTERED)
def test_a_filter_ends_the_item(row: Any):
    """P40."""
    advice = advised(*row[1:])
    assert isinstance(advice, Final)
    assert advice.outcome is Outcome.CONTENT_FILTERED


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "42", "reasoning_content": "6 times 7"}, "42", "6 times 7"),
        ({"content": "42", "reasoning": "6 times 7"}, "42", "6 times 7"),
        ({"content": "42", "reasoning": None, "reasoning_content": None}, "42", None),
        ({"content": "42", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, "42", None),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "6 times 7"}]},
                    {"type": "text", "text": "42"},
                ]
            },
            "42",
            "6 times 7",
        ),
        ({"content": [{"type": "thinking", "thinking": "hm"}, {"text": "42"}]}, "42", "hm"),
        ({"content": [{"type": "thinking", "thinking": ""}, {"text": "42"}]}, "42", None),
        ({"content": ["?", {"type": "thinking", "thinking": "hm"}, {"text": "42"}]}, "42", "hm"),
        ({"content": [{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "42"}]}, "42", "hm"),
    ],
)
def test_thought_is_kept_apart_from_the_answer(message: dict[str, Any], text: str, reasoning: str | None):
    """P49."""
    body = completion()
    body["choices"][0]["message"] = message
    seen = read(200, body)
    assert isinstance(seen, Reply)
    assert (seen.text, seen.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # SGLang
        (
            {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16, "reasoning_tokens": 4},
            Usage(prompt=9, completion=7, reasoning=4),
        ),
        # services that leave the reasoning out of the completion
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 7,
                "total_tokens": 116,
                "completion_tokens_details": {"reasoning_tokens": 100},
            },
            Usage(prompt=9, completion=107, reasoning=100),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 116},
            Usage(prompt=9, completion=107),
        ),
        # a total that is too small says nothing
        (
            {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 1},
            Usage(prompt=9, completion=7),
        ),
        # vLLM
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 7,
                "total_tokens": 16,
                "prompt_tokens_details": {"cached_tokens": 8},
            },
            Usage(prompt=9, completion=7, cached=8),
        ),
    ],
)
def test_usage_is_read_in_each_dialect(usage: Any, expected: Usage):
    """P36."""
    seen = read(200, completion(usage=usage))
    assert isinstance(seen, Reply)
    assert seen.usage == expected


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ("length", Outcome.TRUNCATED),
        ("MAX_TOKENS", Outcome.TRUNCATED),
        ("max_output_tokens", Outcome.TRUNCATED),
        ("model_length", Outcome.TRUNCATED),
        ("SAFETY", Outcome.CONTENT_FILTERED),
        ("content_filter", Outcome.CONTENT_FILTERED),
        ("content-filter", Outcome.CONTENT_FILTERED),
        ("prohibited_content", Outcome.CONTENT_FILTERED),
        ("blocklist", Outcome.CONTENT_FILTERED),
        ("recitation", Outcome.CONTENT_FILTERED),
        ("spii", Outcome.CONTENT_FILTERED),
        ("refusal", Outcome.REFUSED),
    ],
)
def test_each_word_for_an_end_that_is_none_is_known(said: str, outcome: Outcome):
    enlarged = History(tries=1, max_tries=5, enlarged=True)
    for content in ("half", None):
        advice = advise(read(200, completion(content, finish_reason=said)), {}, enlarged, NOW)
        assert isinstance(advice, Final)
        assert advice.outcome is outcome


@pytest.mark.parametrize(
    "said",
    ["abort", "aborted", "cancelled", "error", "ERROR", "insufficient_system_resource", "load", "unload"],
)
def test_a_reply_that_the_service_broke_off_is_tried_again(said: str):
    seen = read(200, completion("half", finish_reason=said))
    assert isinstance(seen, Failure)
    assert (seen.kind, seen.maybe_paid) == ("malformed", True)
    assert isinstance(advise(seen, {}, HISTORY, NOW), Retry)


@pytest.mark.parametrize("said", ["stop", "STOP", "eos", "stop_sequence", "end_turn", "", None])
def test_other_words_are_an_ordinary_end(said: str | None):
    assert advise(read(200, completion("whole", finish_reason=said)), {}, HISTORY, NOW) is None


@pytest.mark.parametrize(
    ("refusal", "content", "words"),
    [("No.", "Well", "No."), (None, "I can't.", "I can't."), (None, None, "refusal")],
)
def test_the_words_of_a_refusal_are_the_models_where_it_says_any(refusal: Any, content: Any, words: str):
    body = completion(content, finish_reason="refusal")
    body["choices"][0]["message"]["refusal"] = refusal
    seen = read(200, body)
    assert isinstance(seen, Reply)
    assert seen.refusal == words


@pytest.mark.parametrize("error", [None, {}, "", []])
def test_a_choice_without_an_error_is_a_reply(error: Any):
    body = completion("whole")
    body["choices"][0]["error"] = error
    assert isinstance(read(200, body), Reply)


def test_an_error_of_one_choice_in_words_is_an_error():
    body = completion("half")
    body["choices"][0]["error"] = "upstream died"
    seen = read(200, body)
    assert isinstance(seen, Failure)
    assert (seen.status, seen.message) == (502, "upstream died")


def test_an_error_of_one_choice_is_an_error():
    body = completion("half")
    body["choices"][0]["error"] = {"code": 429, "message": "upstream is busy"}
    seen = read(200, body)
    assert isinstance(seen, Failure)
    assert (seen.status, seen.message) == (429, "upstream is busy")


def test_an_error_object_with_status_200_is_an_error():
    seen = read(200, bare("worker died", type="internal", code=503))
    assert isinstance(seen, Failure)
    assert (seen.kind, seen.status, seen.type) == ("http", 503, "internal")
