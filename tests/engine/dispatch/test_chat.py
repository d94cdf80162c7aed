"""Whatever comes back becomes a reply or a failure, never an exception."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.dispatch.wire import chat
from airflow_provider_llmbatch.engine.exchange import Failure, Reply
from airflow_provider_llmbatch.engine.items import Usage
from tests.engine.dispatch.wire_bodies import completion, names, scalars, values


def decoded(body: Any, status: int = 200, **headers: str) -> Reply | Failure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return chat.decode(status, {name.replace("_", "-"): value for name, value in headers.items()}, raw)


def failed(body: Any, status: int = 200) -> Failure:
    seen = decoded(body, status)
    assert isinstance(seen, Failure), seen
    return seen


def replied(body: Any) -> Reply:
    seen = decoded(body)
    assert isinstance(seen, Reply), seen
    return seen


def is_well_formed(seen: Reply | Failure) -> bool:
    texts = ("text", "refusal", "finish_reason", "model", "request_id", "reasoning")
    if isinstance(seen, Failure):
        texts = ("message", "code", "type", "param", "request_id")
        assert len(seen.message) <= 1000
    return all(isinstance(getattr(seen, name), str | None) for name in texts)


@settings(max_examples=300, deadline=None)
@given(status=st.integers(100, 599), body=values)
def test_any_json_is_read_without_an_exception(status: int, body: Any):
    assert is_well_formed(decoded(body, status))


@settings(max_examples=300, deadline=None)
@given(
    status=st.sampled_from([200, 400, 429, 500]),
    body=st.dictionaries(names, st.one_of(scalars, values), max_size=6),
    choice=st.dictionaries(names, st.one_of(scalars, values), max_size=4),
)
def test_any_object_in_the_place_of_a_completion_is_read(status: int, body: Any, choice: Any):
    assert is_well_formed(decoded({**body, "choices": [choice]}, status))
    assert is_well_formed(decoded({**completion(), **body}, status))
    assert is_well_formed(decoded({"error": body}, status))


@given(status=st.integers(100, 599), body=st.binary(max_size=300))
def test_any_bytes_are_read_without_an_exception(status: int, body: bytes):
    assert is_well_formed(decoded(body, status))


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 50_000, b"1" * 10_000, b"\xff\xfe{", b""])
def test_hostile_bytes_are_malformed(body: bytes):
    seen = failed(body)
    assert (seen.kind, seen.maybe_paid) == ("malformed", True)


def test_a_completion_is_a_reply():
    seen = decoded(completion("fine"), x_request_id="req-1")
    assert seen == Reply(
        text="fine",
        refusal=None,
        finish_reason="stop",
        usage=Usage(prompt=10, completion=5),
        model="m-1",
        request_id="req-1",
    )


def test_content_in_parts_and_thought_in_a_field_are_read():
    body = completion([{"type": "text", "text": "fi"}, {"type": "text", "text": "ne"}, {"type": "x"}])
    body["choices"][0]["message"]["reasoning_content"] = "hm"
    seen = replied(body)
    assert (seen.text, seen.reasoning) == ("fine", "hm")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": 502, "message": "upstream died"}, 502),
        ({"code": "503", "message": "upstream died"}, 503),
        ({"status": 429, "message": "slow down"}, 429),
        ({"code": "server_error", "message": "upstream died"}, 502),
        ({"code": 200, "message": "odd"}, 502),
        ("upstream died", 502),
    ],
)
def test_an_error_inside_a_200_has_the_status_that_it_names(error: Any, status: int):
    """P28."""
    seen = failed({"id": None, "choices": None, "usage": None, "error": error})
    assert (seen.kind, seen.status) == ("http", status)


@pytest.mark.parametrize("choices", [None, [], {}, "x", [None], [{}], [{"message": None}], [[1]]])
def test_a_200_without_a_message_is_malformed_and_names_what_came(choices: Any):
    """P28, P42."""
    seen = failed({"id": None, "choices": choices, "usage": None})
    assert (seen.kind, seen.status, seen.maybe_paid) == ("malformed", 200, True)
    assert seen.keys == ("id", "choices", "usage")
    assert "choices" in seen.message


def test_the_shape_of_another_api_is_named_by_its_keys():
    """P42."""
    seen = failed({"object": "response", "output": [{"type": "message"}]})
    assert seen.kind == "malformed"
    assert seen.keys == ("object", "output")
    assert "'object'" in seen.message
    assert "'output'" in seen.message


def test_a_page_is_quoted_cut_to_size():
    """P28."""
    seen = failed(b"<html>" + b"x" * 10_000)
    assert seen.message.startswith("The body is no JSON object: '<html>xx")
    assert len(seen.message) < 300


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            b'{"choices":[{"message":{"content":"my secret',
            "44 bytes of JSON that break off or have another form.",
        ),
        (b'["my secret"]', "13 bytes of JSON that break off or have another form."),
        ('{"choices":"my größe secret"}'.encode("latin-1"), "29 bytes that are not UTF-8."),
        (
            b'data: {"choices":[{"delta":{"content":"my secret"}}]}',
            "a stream of events, which was not asked for.",
        ),
        (
            b'event: message\ndata: {"choices":[{"delta":{"content":"my secret"}}]}',
            "a stream of events, which was not asked for.",
        ),
        (b'"my secret', "10 bytes of JSON that break off or have another form."),
        (b"", "an empty body"),
    ],
)
def test_what_was_to_be_a_reply_is_told_apart_and_never_quoted(body: bytes, words: str):
    seen = failed(body)
    assert (seen.kind, seen.message) == ("malformed", f"The body is no JSON object: {words}")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        ("many", None),
        ({"total_tokens": 15}, None),
        ({"prompt_tokens": 10, "total_tokens": 15}, Usage(prompt=10, completion=5)),
        ({"completion_tokens": 5, "total_tokens": 15}, Usage(prompt=10, completion=5)),
        ({"completion_tokens": 15, "total_tokens": 15}, Usage(prompt=0, completion=15)),
        ({"prompt_tokens": 15, "total_tokens": 15}, Usage(prompt=15, completion=0)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, Usage(prompt=0, completion=0)),
        ({"prompt_tokens": 10, "completion_tokens": -1}, None),
        ({"prompt_tokens": True, "completion_tokens": 5}, None),
        ({"prompt_tokens": 10.0, "completion_tokens": 5.0}, Usage(prompt=10, completion=5)),
        ({"prompt_tokens": 10**30, "completion_tokens": 5}, None),
        ({"prompt_tokens": 10**12 + 1, "completion_tokens": 5}, None),
        ({"prompt_tokens": 10**12, "completion_tokens": 0}, Usage(prompt=10**12, completion=0)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 99},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(prompt=10, cached=10, completion=5, reasoning=3),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": None},
            Usage(prompt=10, completion=5),
        ),
    ],
)
def test_usage_is_read_as_far_as_it_says_something(usage: Any, expected: Usage | None):
    """P36."""
    assert replied(completion(usage=usage)).usage == expected


def test_a_reply_without_usage_is_kept():
    """P36."""
    body = completion()
    del body["usage"]
    assert replied(body).usage is None


@pytest.mark.parametrize("content", [None, "", [], [{"type": "thinking", "thinking": "hm"}]])
def test_a_reply_without_text_is_a_reply_when_it_has_an_end(content: Any):
    assert failed(completion(content, finish_reason=None)).kind == "malformed"
    for reason in ("stop", "eos", "length", "max_tokens", "content_filter"):
        assert not replied(completion(content, finish_reason=reason)).text


def test_a_refusal_needs_no_text_and_no_end():
    body = completion(None, finish_reason=None)
    body["choices"][0]["message"]["refusal"] = "No."
    assert replied(body).refusal == "No."


@pytest.mark.parametrize("content", [{}, {"text": "x"}, 0, 1, False])
def test_a_content_of_another_form_is_malformed(content: Any):
    assert failed(completion(content)).kind == "malformed"
    assert replied(completion(content, finish_reason="length")).text is None
    bare = completion()
    del bare["choices"][0]["message"]["content"]
    assert failed(bare).kind == "malformed"


def test_azures_filter_names_what_it_caught():
    """P40."""
    inner = {
        "code": "ResponsibleAIPolicyViolation",
        "content_filter_result": {"jailbreak": {"filtered": True}, "hate": {"filtered": False}},
    }
    seen = failed({"error": {"code": "content_filter", "message": "no", "innererror": inner}}, 400)
    assert (seen.code, seen.message) == ("content_filter", "no (filtered: jailbreak)")
    seen = failed({"error": {"message": "no", "innererror": inner}}, 400)
    assert seen.code == "ResponsibleAIPolicyViolation"


@pytest.mark.parametrize(("status", "maybe_paid"), [(400, False), (429, False), (500, True), (503, True)])
def test_an_error_may_have_been_paid_when_the_service_failed(status: int, maybe_paid: bool):
    seen = failed({"error": {"message": "no", "type": "t", "code": 17, "param": "p"}}, status)
    assert (seen.kind, seen.status, seen.maybe_paid) == ("http", status, maybe_paid)
    assert (seen.code, seen.type, seen.param) == ("17", "t", "p")


def test_a_request_is_strict_json_in_ascii():
    body = chat.encode("m", [{"role": "user", "content": "größe \ud800"}], {"temperature": 0})
    assert body.isascii()
    assert json.loads(body)["messages"][0]["content"] == "größe \ud800"
    with pytest.raises(ValueError, match="not JSON compliant"):
        chat.encode("m", [], {"temperature": float("nan")})
