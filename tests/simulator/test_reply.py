"""Completions depend on the request and on nothing else."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from airflow_provider_llmbatch.simulator.chat import ChatRequest, decode, read_chat
from airflow_provider_llmbatch.simulator.count import counter, estimate
from airflow_provider_llmbatch.simulator.reply import Completion, compose, latency, usage
from airflow_provider_llmbatch.simulator.scenario import Fault
from airflow_provider_llmbatch.simulator.shapes import ApiError

SCHEMA = {"type": "object", "properties": {"label": {"enum": ["a", "b"]}}, "required": ["label"]}


def request(text: str = "hello", **params: Any) -> ChatRequest:
    body, sha = decode(
        json.dumps({"model": "m-1", "messages": [{"role": "user", "content": text}], **params}).encode()
    )
    return read_chat(body, sha, estimate)


def composed(asked: ChatRequest, **fault: Any) -> Completion:
    return compose(asked, Fault(**fault), estimate, output_words=40)


def test_the_same_request_gets_the_same_reply_and_another_one_another() -> None:
    assert composed(request("x")) == composed(request("x"))
    assert composed(request("x")) != composed(request("y"))
    assert composed(request("x")) != composed(request("x", temperature=1))


def test_key_order_and_white_space_do_not_change_the_question() -> None:
    first = decode(b'{"model": "m", "messages": [1.5, "\\u00e4"]}')[1]
    assert decode('{"messages":[1.5,"ä"],"model":"m"}'.encode())[1] == first
    assert decode(b"no json")[0] is None
    assert decode(b"no json")[1] != decode(b"no json ")[1]


def test_a_reply_beyond_the_cap_is_cut_and_says_so() -> None:
    whole, cut = composed(request("x")), composed(request("x", max_tokens=10))
    assert whole.finish_reason == "stop"
    assert cut.finish_reason == "length"
    assert cut.content is not None
    assert cut.completion_tokens == 10
    assert estimate(cut.content) == 10


def test_the_newer_name_of_the_cap_is_read_as_well() -> None:
    assert composed(request("x", max_completion_tokens=10)).completion_tokens == 10


def test_reasoning_takes_from_the_cap_and_may_eat_it_all() -> None:
    thinking = composed(request("x", reasoning_effort="low"))
    assert thinking.reasoning_tokens == 64
    assert thinking.content
    starved = composed(request("x", reasoning_effort="medium", max_completion_tokens=100))
    assert (starved.content, starved.finish_reason) == ("", "length")
    assert (starved.reasoning_tokens, starved.completion_tokens) == (100, 100)


def test_json_is_given_as_asked_for() -> None:
    small = composed(request("x", response_format={"type": "json_object"}))
    assert set(json.loads(small.content or "")) == {"answer", "confidence"}
    by_name = {"type": "json_schema", "json_schema": {"name": "label", "schema": SCHEMA}}
    for wanted in (by_name, {"type": "json_object", "schema": SCHEMA}):
        jsonschema.validate(json.loads(composed(request("x", response_format=wanted)).content or ""), SCHEMA)


def test_a_schema_without_documents_is_the_callers_error() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objekt"}}}
    with pytest.raises(ApiError, match="Invalid schema for response_format") as caught:
        composed(request("x", response_format=wanted))
    assert caught.value.status == 400


def test_usage_adds_up_and_counts_half_of_a_long_prompt_as_cached() -> None:
    told = usage(request("x" * 8000), Completion(content="", finish_reason="stop", completion_tokens=7))
    assert told["total_tokens"] == told["prompt_tokens"] + 7
    assert told["prompt_tokens_details"]["cached_tokens"] == 896
    assert usage(request("x"), composed(request("x")))["prompt_tokens_details"]["cached_tokens"] == 0


def test_the_latency_of_a_request_is_its_own_and_stays_in_the_spread() -> None:
    seconds = [latency(request(str(number)), 0.4, 0.25) for number in range(200)]
    assert seconds == [latency(request(str(number)), 0.4, 0.25) for number in range(200)]
    assert 0.3 <= min(seconds) < 0.35
    assert 0.45 < max(seconds) <= 0.5
    assert latency(request(), 0.4, 0.0) == 0.4


def test_the_prompt_count_covers_messages_tools_and_schema() -> None:
    plain = request("x" * 40).prompt_tokens
    assert plain == 10 + 4 + 3
    assert request("x" * 40, tools=[{"type": "function"}]).prompt_tokens > plain
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 40}]}]}
    assert read_chat(body, "", estimate).prompt_tokens == plain


def test_the_o200k_counter_counts_words() -> None:
    count = counter("o200k")
    assert count("hello world") == 2
    assert count("The file ends with <|endoftext|>") > 5
    assert count("") == 0


@pytest.mark.parametrize(
    ("body", "words", "status"),
    [
        ("text", "could not parse the JSON body", 400),
        ({"messages": []}, "must provide a model", 400),
        ({"model": "m"}, "Missing required parameter: 'messages'", 400),
        ({"model": "m", "messages": "hello"}, "Missing required parameter: 'messages'", 400),
        ({"model": "m", "messages": []}, "minimum length 1", 400),
        ({"model": "m", "messages": [{}], "max_tokens": 0}, "Invalid 'max_tokens'", 400),
        ({"model": "m", "messages": [{}], "max_tokens": "9"}, "expected an integer", 400),
        ({"model": "m", "messages": [{}], "response_format": "json"}, "Invalid 'response_format'", 400),
        ({"model": "m", "messages": [{}], "response_format": {"type": "json_schema"}}, "schema'", 400),
        (
            {"model": "m", "messages": [{}], "response_format": {"type": "json_object", "schema": "x"}},
            "expected an object",
            400,
        ),
        ({"model": "m", "messages": [{}], "stream": True}, "does not answer requests with stream", 501),
        ({"model": "m", "messages": [{}], "n": 2}, "does not answer requests with n=2", 501),
    ],
)
def test_a_request_that_cannot_be_read_is_answered_as_openai_would(
    body: Any, words: str, status: int
) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        read_chat(body, "", estimate)
    assert caught.value.status == status
