"""
Tens of thousands of bodies that something is wrong with, each judged by what must hold for any.

LLMBATCH_FUZZ=50, or ``make fuzz``, tries fifty times as many.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.dispatch.judging import judge
from tests.engine.dispatch.wire_bodies import completion, values

TIMES = int(os.environ.get("LLMBATCH_FUZZ", "1"))
#: bodies that are made up, and the cases that each becomes at least
BODIES = 2_000
CASES_EACH = 11

GOOD = [
    completion(),
    completion([{"type": "text", "text": "fine"}], system_fingerprint="x"),
    completion(None, finish_reason="length"),
    {
        **completion("a", usage={"prompt_tokens_details": {"cached_tokens": 1}, "total_tokens": 3}),
        "error": None,
    },
    {"error": {"message": "no", "type": "t", "param": "max_tokens", "code": "unsupported_parameter"}},
    {"error": {"code": 429, "innererror": {"content_filter_result": {"hate": {"filtered": True}}}}},
    {"object": "error", "message": {"detail": [{"loc": ["body", "top_k"], "msg": "extra", "type": "x"}]}},
    {"detail": [{"loc": ["body", "temperature"], "msg": "Extra inputs are not permitted"}]},
    [{"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}],
]  # fmt: skip
ABSENT = object()
DEEP: Any = {"a": 1}
for _ in range(60):
    DEEP = {"error": DEEP, "message": [DEEP]} if _ % 20 == 0 else {"message": DEEP}
ODD = [
    ABSENT, None, True, False, 0, -1, 429, 500, 10**30, -(10**30), 1.5, 1e308, "", " ", "0", "429", "None",
    "length", "error", "x" * 3000, "\0", "\ud800", "größe", [], {}, [[]], [None], [{}], {"message": None},
    {"message": {"content": "fine"}}, [{"message": {"content": "fine"}}], DEEP, ["x"] * 500, {"error": "x"},
    {"code": 429}, {"code": "content_filter"}, '{"detail": "x"}', '[{"msg": 1}]', "[" * 500,
]  # fmt: skip
STATUSES = [
    200,
    200,
    200,
    201,
    204,
    100,
    101,
    301,
    400,
    401,
    403,
    404,
    408,
    413,
    422,
    429,
    500,
    503,
    529,
    599,
    999,
]
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "retry-after", "retry-after-ms", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens",
            "x-request-id", "content-type",
        ]
    ),
    st.sampled_from(
        [
            "0", "1", "-1", "nan", "1e400", "inf", "6m0s", "20ms", "9" * 60, "9" * 4400,
            "9999-12-31T23:59:59Z", "Sun, 29 Nov 2026 12:01:30 GMT", "Sun, 29 Nov 99999 12:01:30 GMT",
            "0001-01-01", "\x00", "\xff", "",
        ]
    ),
    max_size=3,
)  # fmt: skip
CHANGES = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(ODD)), min_size=1, max_size=4)


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a document with each of its keys."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


def changed(body: Any, changes: list[tuple[int, Any]]) -> Any:
    """Put odd values into some places of a copy of a good body."""
    body = copy.deepcopy(body)
    for number, value in changes:
        found = list(places(body))
        if not found:
            break
        node, key = found[number % len(found)]
        if value is not ABSENT:
            node[key] = copy.deepcopy(value)
        elif isinstance(node, dict):
            del node[key]
    return body


def cases(body: Any, cut: int) -> Iterator[bytes]:
    """Yield a body whole, in several places of an envelope, cut, damaged and in other encodings."""
    whole = json.dumps(body).encode()
    yield whole
    yield json.dumps({"error": body}).encode()
    yield json.dumps({"choices": [body]}).encode()
    yield json.dumps({"choices": [{"message": body}]}).encode()
    yield json.dumps({**completion(), "usage": body}).encode()
    yield json.dumps(completion(body)).encode()
    yield json.dumps(body).encode("utf-16")
    yield whole[: cut % (len(whole) + 1)]
    yield whole + b"\n" + whole
    spot = cut % len(whole)
    yield whole[:spot] + bytes([cut % 256]) + whole[spot + 1 :]
    yield b"data: " + whole + b"\n\ndata: [DONE]\n\n"


@settings(max_examples=BODIES * TIMES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(GOOD), CHANGES, st.sampled_from(STATUSES), HEADERS, st.integers(0, 5000))
def test_a_body_with_odd_fields_ends_in_one_outcome_or_one_advice(good, changes, status, headers, cut):
    """P28, P42."""
    tried = 0
    for body in cases(changed(good, changes), cut):
        judge(status, headers, body)
        tried += 1
    assert tried >= CASES_EACH


@settings(max_examples=200 * TIMES, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=values, status=st.integers(0, 999), headers=HEADERS, cut=st.integers(0, 5000))
def test_any_json_ends_in_one_outcome_or_one_advice(body, status, headers, cut):
    for case in cases(body, cut):
        judge(status, headers, case)


@settings(max_examples=300 * TIMES, deadline=None)
@given(body=st.binary(max_size=300), status=st.integers(0, 999), headers=HEADERS)
def test_any_bytes_end_in_one_outcome_or_one_advice(body, status, headers):
    judge(status, headers, body)


@pytest.mark.parametrize("status", [200, 400, 429, 500])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xef\xbb\xbf{}",
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"1" * 100_000,
        b'{"choices":[{"message":{"content":"' + b"x" * 10_000_000,
        b'{"error":{"code":' + b"9" * 4000 + b"}}",
        b'{"error":"' + b"x" * 1_000_000 + b'"}',
        '{"choices":[{"message":{"content":"größe"}}]}'.encode("latin-1"),
        b"<html><body>" + b"<p>" * 100_000,
    ],
    ids=lambda body: repr(body[:12]),
)
def test_a_huge_or_foreign_body_ends_in_one_outcome_or_one_advice(status: int, body: bytes):
    judge(status, {}, body)


def test_the_cases_are_twenty_thousand():
    assert BODIES * CASES_EACH >= 20_000
