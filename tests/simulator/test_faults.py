"""Each scripted fault over a real socket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from airflow_provider_llmbatch.simulator.settings import read_keys

Start = Callable[..., Any]


def choice(reply: httpx.Response) -> dict[str, Any]:
    return dict(reply.json()["choices"][0])


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (401, "invalid_request_error", None),
        (429, "requests", "rate_limit_exceeded"),
        (500, "server_error", None),
        (529, "server_error", None),
    ],
)
def test_a_status_alone_brings_a_fitting_error_body(
    start: Start, status: int, kind: str, code: str | None
) -> None:
    reply = start({"reply": {"status": status}}).ask()
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["code"]) == (status, kind, code)


def test_an_error_object_is_sent_as_scripted(start: Start) -> None:
    error = {"message": "no credit left", "type": "insufficient_quota", "code": "insufficient_quota"}
    reply = start({"reply": {"status": 429, "error": error}}).ask()
    assert reply.json() == {"error": {**error, "param": None}}
    assert "retry-after" not in reply.headers


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("upstream died", "text/plain"),
        ("<html><h1>502</h1></html>", "text/html"),
        ({"id": None, "choices": None, "usage": None}, "application/json"),
        ([1, 2], "application/json"),
        (None, "application/json"),
        ("", "text/plain"),
    ],
)
def test_any_body_is_sent_with_its_type(start: Start, body: Any, kind: str) -> None:
    reply = start({"reply": {"body": body}}).ask()
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith(kind)
    assert (reply.text if isinstance(body, str) else reply.json()) == body


def test_headers_replace_those_of_the_simulator(start: Start) -> None:
    headers = {"Retry-After": "Fri, 15 Jan 2027 08:00:00 GMT", "X-RateLimit-Reset-Tokens": "1h2m3.5s"}
    reply = start({"reply": {"status": 503, "headers": headers}}).ask()
    assert reply.headers["retry-after"] == headers["Retry-After"]
    assert reply.headers.get_list("x-ratelimit-reset-tokens") == ["1h2m3.5s"]


def test_a_delay_comes_on_top(start: Start) -> None:
    began = time.monotonic()
    assert start({"reply": {"delay_s": 0.15}}).ask().status_code == 200
    assert time.monotonic() - began >= 0.15


def test_a_reset_before_the_headers_breaks_the_connection(start: Start) -> None:
    client = start({"match": {"first": 1}, "reply": {"reset": "before"}})
    with pytest.raises(httpx.ReadError):
        client.ask()
    assert client.ask().status_code == 200
    assert [row["status"] for row in client.arrivals()] == [0, 200]


def test_a_reset_after_the_headers_breaks_the_body(start: Start) -> None:
    client = start({"match": {"first": 1}, "reply": {"reset": "after"}})
    with client.http.stream("POST", **_call(client)) as reply:
        assert reply.status_code == 200
        with pytest.raises(httpx.ReadError):
            reply.read()
    assert client.ask().status_code == 200


def test_half_a_body_ends_before_its_declared_length(start: Start) -> None:
    client = start({"match": {"first": 1}, "reply": {"half_body": True}})
    with client.http.stream("POST", **_call(client)) as reply:
        length = int(reply.headers["content-length"])
        with pytest.raises(
            httpx.RemoteProtocolError, match=f"received {length // 2} bytes, expected {length}"
        ):
            reply.read()
    assert client.ask().status_code == 200


def test_a_trickling_body_arrives_whole_and_late(start: Start) -> None:
    client = start({"reply": {"drip_s": 0.2}})
    began = time.monotonic()
    reply = client.ask()
    assert choice(reply)["finish_reason"] == "stop"
    assert time.monotonic() - began >= 0.19
    assert client.arrivals()[0]["status"] == 200


def test_a_damaged_gzip_stream_cannot_be_decoded(start: Start) -> None:
    with pytest.raises(httpx.DecodingError):
        start({"reply": {"broken_gzip": True}}).ask()


def test_truncation_cuts_the_json_and_says_length(start: Start) -> None:
    client = start({"match": {"first": 1}, "reply": {"truncate": True}})
    cut = choice(client.ask(response_format={"type": "json_object"}))
    whole = choice(client.ask(response_format={"type": "json_object"}))
    assert cut["finish_reason"] == "length"
    assert whole["message"]["content"].startswith(cut["message"]["content"])
    with pytest.raises(json.JSONDecodeError):
        json.loads(cut["message"]["content"])


def test_a_refusal_has_no_content(start: Start) -> None:
    message = choice(start({"reply": {"refusal": "I cannot help with that."}}).ask())["message"]
    assert (message["content"], message["refusal"]) == (None, "I cannot help with that.")


def test_the_filter_on_the_prompt_is_azures_400(start: Start) -> None:
    client = start({"reply": {"content_filter": "request"}})
    reply = client.ask()
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (400, "content_filter")
    assert error["innererror"]["code"] == "ResponsibleAIPolicyViolation"
    assert error["innererror"]["content_filter_result"]["jailbreak"]["filtered"] is True
    assert client.arrivals()[0]["admitted"] is False


def test_the_filter_on_the_reply_is_a_200_without_content(start: Start) -> None:
    found = choice(start({"reply": {"content_filter": "reply"}}).ask())
    assert (found["finish_reason"], found["message"]["content"]) == ("content_filter", None)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [("missing", "absent"), (None, None), ({"total_tokens": 9}, {"total_tokens": 9})],
    ids=["missing", "null", "override"],
)
def test_usage_is_left_out_null_or_something_else(start: Start, usage: Any, expected: Any) -> None:
    client = start({"reply": {"usage": usage}}, counts="used")
    assert client.ask().json().get("usage", "absent") == expected
    assert usage is None or usage == "missing" or client.arrivals()[0]["tokens"] == 9


@pytest.mark.parametrize("content", ['```json\n{"a": 1}\n```', '{"score": NaN}', "", None])
def test_literal_content_is_sent_as_it_stands(start: Start, content: str | None) -> None:
    found = choice(start({"reply": {"content": content, "finish_reason": "tool_calls"}}).ask(max_tokens=1))
    assert (found["message"]["content"], found["finish_reason"]) == (content, "tool_calls")


def test_the_authorization_header_can_be_echoed(start: Start) -> None:
    client = start(
        {"reply": {"status": 401, "error": {"message": "bad key"}, "echo_authorization": True}},
        keys=read_keys("a=sk-canary"),
    )
    reply = client.ask(key="sk-canary")
    assert reply.json()["error"]["message"] == "bad key (Authorization: Bearer sk-canary)"
    assert reply.headers["x-echo-authorization"] == "Bearer sk-canary"


def test_a_rule_by_key_revokes_one_credential(start: Start) -> None:
    client = start({"match": {"key": "a"}, "reply": {"status": 401}}, keys=read_keys("a=sk-a,b=sk-b"))
    assert [client.ask(key=key).status_code for key in ("sk-a", "sk-b", "sk-a")] == [401, 200, 401]


def test_a_parameter_is_refused_until_it_is_left_out(start: Start) -> None:
    error = {"code": "unsupported_parameter", "param": "max_tokens", "message": "use max_completion_tokens"}
    client = start({"match": {"param": "max_tokens"}, "reply": {"status": 400, "error": error}})
    assert client.ask(max_tokens=5).json()["error"]["param"] == "max_tokens"
    assert client.ask(max_completion_tokens=5).status_code == 200


def test_a_fault_takes_from_the_limit_unless_the_gateway_answers_it(start: Start) -> None:
    client = start(
        {"match": {"contains": "gateway"}, "reply": {"status": 429}},
        {"match": {"contains": "backend"}, "reply": {"status": 500}},
        rpm=1,
    )
    assert [client.ask(text).status_code for text in ("gateway", "backend", "backend")] == [429, 500, 429]


def test_a_failed_call_uses_no_tokens_where_usage_counts(start: Start) -> None:
    client = start({"reply": {"status": 500}}, counts="used")
    client.ask()
    assert client.arrivals()[0]["tokens"] == 0


def _call(client: Any) -> dict[str, Any]:
    body = {"model": "m-1", "messages": [{"role": "user", "content": "hello"}]}
    return {"url": f"{client.url}/chat/completions", "json": body}
