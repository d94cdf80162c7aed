"""How an error object is read: its names, its words, the status inside, and what may have been paid."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.dispatch.wire import chat, errors
from airflow_provider_llmbatch.engine.exchange import Failure, Reply
from tests.engine.dispatch.wire_bodies import completion


def failed(status: int, body: Any) -> Failure:
    seen = chat.decode(status, {}, json.dumps(body).encode())
    assert isinstance(seen, Failure)
    return seen


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("x", "x"),
        (17, "17"),
        (-1, "-1"),
        (10**18 - 1, "9" * 18),
        (10**18, "a very large number"),
        (-(10**18), "a very large number"),
        ("y" * 300, "y" * 200),
        ("a\0\ud800", "a\N{REPLACEMENT CHARACTER}?"),
        *((nothing, None) for nothing in ("", "None", "null", None, True, 1.5, [], {})),
    ],
)
def test_a_name_is_short_and_can_be_stored(value: Any, name: str | None):
    assert errors.name(value) == name


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"code": 300}, 300),
        ({"code": 599}, 599),
        ({"code": "429"}, 429),
        ({"status": 503}, 503),
        ({"statusCode": 401}, 401),
        ({"code": "rate_limited", "status": 429}, 429),
        *(
            ({"code": odd}, None)
            for odd in (299, 600, "42", "4290", "²²²", "x", "abc", "0429", True, 429.0, None, [429])
        ),
        ("429", None),
        (None, None),
    ],
)
def test_the_status_inside_is_one_of_an_error(error: Any, status: int | None):
    """P28."""
    assert errors.status_inside(error) == status


@pytest.mark.parametrize("key", ["message", "detail", "msg", "error", "error_description"])
def test_words_are_found_wherever_they_stand(key: str):
    assert failed(400, {"error": {key: "in words"}}).message == "in words"
    assert failed(400, {key: "in words"}).message == "in words"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"detail": {"error": [{"msg": "deep"}]}}, "deep"),
        ('{"detail": "in a string"}', "in a string"),
        ('[{"msg": "one"}, {"msg": "two"}, {"msg": "three"}, {"msg": "four"}]', "one; two; three"),
        ("{no json}", "{no json}"),
        ("[" * 5000, "[" * 400),
        ([{"loc": ["query", "x", 3], "msg": "wrong"}], "query.x.3: wrong"),
        ([{"loc": ["y" * 50], "msg": "wrong"}], f"{'y' * 40}: wrong"),
        ([{"loc": list(range(10)), "msg": "wrong"}], "0.1.2.3.4.5.6.7: wrong"),
        ([{"loc": ["query", "x"]}], "An error without a message; it has the keys ['message']."),
        ([1, None, {}], "An error without a message; it has the keys ['message']."),
        ("", "An error without a message; it has the keys ['message']."),
        ({"a": {"message": "x"}}, "An error without a message; it has the keys ['message']."),
        ("x" * 5000, "x" * 400),
    ],
)
def test_a_message_of_any_form_is_in_words_and_short(said: Any, words: str):
    assert failed(400, {"error": {"message": said}}).message == words


def test_an_error_without_words_is_told_by_its_first_keys():
    said = {"y" * 50: 1} | {str(number): 1 for number in range(20)}
    keys = ["y" * 40, *(str(number) for number in range(11))]
    assert failed(400, {"error": said}).message == f"An error without a message; it has the keys {keys}."


def test_the_message_is_told_before_the_name_of_the_error():
    assert failed(404, {"error": "Not Found", "detail": "no such model"}).message == "no such model"
    assert failed(404, {"error": "Not Found", "message": "no such model"}).message == "no such model"
    assert failed(404, {"error": "Not Found", "message": None}).message == "Not Found"


@pytest.mark.parametrize("status", [0, 100, 101, 199])
def test_what_comes_with_no_final_status_is_malformed_whatever_it_says(status: int):
    seen = failed(status, {"error": {"message": "no", "code": "invalid_api_key"}})
    assert (seen.kind, seen.code, seen.maybe_paid) == ("malformed", None, True)


def test_words_that_are_nested_too_deep_are_let_go():
    said: Any = "deep"
    for _ in range(5):
        said = [said]
    assert failed(400, {"error": {"message": said}}).message.startswith("An error without a message")
    assert failed(400, {"error": {"message": said[0]}}).message == "deep"


def test_json_in_a_string_in_json_is_no_deeper_than_it_looks():
    once = json.dumps([json.dumps(["deep"])])
    assert failed(400, {"error": {"message": once}}).message == "deep"
    assert failed(400, {"error": {"message": [once]}}).message == '["deep"]'


@pytest.mark.parametrize(
    ("status", "kind", "maybe_paid"),
    [
        (100, "malformed", True),
        (199, "malformed", True),
        (300, "http", False),
        (399, "http", False),
        (400, "malformed", False),
        (499, "malformed", False),
        (500, "malformed", True),
    ],
)
def test_a_page_is_judged_by_its_status(status: int, kind: str, maybe_paid: bool):
    seen = chat.decode(status, {}, b"<html>")
    assert isinstance(seen, Failure)
    assert (seen.kind, seen.status, seen.maybe_paid, seen.message) == (kind, status, maybe_paid, "'<html>'")


def test_a_page_is_quoted_by_its_first_two_hundred_characters_on_one_line():
    assert failed_page(b"x" * 1000) == repr("x" * 200)
    assert failed_page(b" a \n\t b " * 300) == repr("a b " * 50)
    assert failed_page("größe \ud83d".encode("utf-8", "surrogatepass") + b"\0") == "'größe ���\ufffd'"
    assert failed_page(b" \n ") == "an empty body"


def failed_page(body: bytes) -> str:
    seen = chat.decode(500, {}, body)
    assert isinstance(seen, Failure)
    return seen.message


def test_filters_are_named_in_both_spellings():
    """P40."""
    hit = {"hate": {"filtered": True}, "self_harm": {"filtered": True}, "violence": {"filtered": False}}
    for outer, inner in (("innererror", "content_filter_result"), ("inner_error", "content_filter_results")):
        seen = failed(400, {"error": {"message": "no", outer: {"code": "Policy", inner: hit}}})
        assert (seen.code, seen.message) == ("Policy", "no (filtered: hate, self_harm)")


@pytest.mark.parametrize("hit", [{"a": True}, {"a": "filtered"}, {"a": {"filtered": "yes"}}, [], "x", None])
def test_a_filter_that_does_not_say_so_plainly_is_not_named(hit: Any):
    """P40."""
    inner = {"code": "Policy", "content_filter_result": hit}
    assert failed(400, {"error": {"message": "no", "innererror": inner}}).message == "no"


def test_a_filter_with_a_long_name_is_named_in_short():
    inner = {"content_filter_result": {"y" * 50: {"filtered": True}}}
    seen = failed(400, {"error": {"message": "no", "innererror": inner}})
    assert seen.message == f"no (filtered: {'y' * 40})"


def test_what_a_check_says_is_read_and_what_was_sent_is_not_repeated():
    said = [{"type": "string_type", "loc": ["body", "stop"], "msg": "should be a string", "input": "secret"}]
    seen = failed(422, {"detail": said})
    assert (seen.code, seen.param, seen.message) == ("invalid_parameter", "stop", "stop: should be a string")
    extra = failed(422, {"detail": [{"loc": ["body", "top_k"], "msg": "Extra inputs are not permitted"}]})
    assert (extra.code, extra.param) == ("unknown_parameter", "top_k")
    silent = failed(422, {"detail": [{"loc": ["body", "top_k"]}]})
    assert (silent.code, silent.message) == (
        "invalid_parameter",
        "top_k: the service's check of the request was not passed",
    )


@pytest.mark.parametrize(
    ("headers", "request_id"),
    [
        ({"x-request-id": "a", "apim-request-id": "b", "x-litellm-call-id": "c"}, "a"),
        ({"apim-request-id": "b", "x-litellm-call-id": "c"}, "b"),
        ({"x-request-id": "", "x-litellm-call-id": "c"}, "c"),
        ({}, "chatcmpl-1"),
    ],
)
def test_the_id_of_a_call_is_that_of_the_nearest_service(headers: dict[str, str], request_id: str):
    seen = chat.decode(200, headers, json.dumps(completion()).encode())
    assert isinstance(seen, Reply)
    assert seen.request_id == request_id


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"type": "text", "text": "x"}, "x"),
        ({"type": "output_text", "text": "x"}, "x"),
        ({"text": "x"}, "x"),
        ({"type": None, "text": "x"}, "x"),
        *(
            (other, None)
            for other in ({"type": "thinking", "text": "x"}, {"type": "image"}, {"type": ["text"]}, "x", 1)
        ),
    ],
)
def test_only_text_is_the_answer(part: Any, text: str | None):
    seen = chat.decode(200, {}, json.dumps(completion([part])).encode())
    assert seen.text == text if isinstance(seen, Reply) else text is None


def test_a_reply_that_calls_tools_says_so():
    body = completion(None, finish_reason="tool_calls")
    body["choices"][0]["message"]["tool_calls"] = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
    assert failed(200, body).message == "The reply calls tools and has no text (finish_reason 'tool_calls')."
