"""From a completion and a scripted fault to the bytes that are sent."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_provider_llmbatch.simulator.scenario import Fault
from airflow_provider_llmbatch.simulator.shapes import json_bytes

Cut = Literal["before", "after", "half"]

JSON_TYPE = "application/json"
_GZIP_HEAD_BYTES = 10
_FILTERED = {
    "message": "The prompt was stopped by the content filter. Change the prompt and try again.",
    "type": None,
    "param": "prompt",
    "code": "content_filter",
    "status": 400,
    "innererror": {
        "code": "ResponsibleAIPolicyViolation",
        "content_filter_result": {
            "hate": {"filtered": False, "severity": "safe"},
            "jailbreak": {"filtered": True, "detected": True},
        },
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is sent, when and how."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    #: seconds from the arrival to the first byte
    wait_s: float = 0.0
    #: where the connection breaks: before anything is sent, after the headers, or half way politely
    cut: Cut | None = None
    #: seconds over which the body trickles out
    drip_s: float = 0.0


def scripted(fault: Fault, completion: Mapping[str, Any], *, wait_s: float, authorization: str) -> Answer:
    """
    Return the answer to an admitted call.

    :param fault: what the scenario does to it; an empty fault sends the completion as it is.
    :param completion: the ``chat.completion`` object.
    :param wait_s: the latency; the fault's delay comes on top.
    :param authorization: the call's Authorization header, for a fault that echoes it.
    """
    status, body, kind = _body(fault, completion, authorization)
    headers = {"content-type": kind}
    if fault.broken_gzip:
        body, headers["content-encoding"] = _damaged(body), "gzip"
    if fault.echo_authorization:
        headers["x-echo-authorization"] = authorization
    headers |= {name.lower(): value for name, value in fault.headers.items()}
    return Answer(
        status=status,
        body=body,
        headers=headers,
        wait_s=wait_s + fault.delay_s,
        cut="half" if fault.half_body else fault.reset,
        drip_s=fault.drip_s,
    )


def _body(fault: Fault, completion: Mapping[str, Any], authorization: str) -> tuple[int, bytes, str]:
    """Return status, body and content type."""
    if fault.content_filter == "request":
        return 400, json_bytes({"error": _FILTERED}), JSON_TYPE
    if isinstance(fault.body, str):
        is_html = fault.body.lstrip().startswith("<")
        return fault.status, fault.body.encode(), "text/html" if is_html else "text/plain"
    if fault.sets("body"):
        return fault.status, json_bytes(fault.body), JSON_TYPE
    if fault.error is not None or fault.status >= 300 or fault.echo_authorization:
        return fault.status, json_bytes({"error": _error(fault, authorization)}), JSON_TYPE
    return fault.status, json_bytes(completion), JSON_TYPE


def _error(fault: Fault, authorization: str) -> dict[str, Any]:
    kind, code = "invalid_request_error", None
    if fault.status == 429:
        kind, code = "requests", "rate_limit_exceeded"
    elif fault.status >= 500:
        kind = "server_error"
    error = {"message": "scripted by the simulator", "type": kind, "param": None, "code": code}
    error |= fault.error or {}
    if fault.echo_authorization:
        error["message"] = f"{error['message']} (Authorization: {authorization})"
    return error


def _damaged(body: bytes) -> bytes:
    """Return the head of a gzip stream of ``body`` with garbage behind it."""
    stream = gzip.compress(body)
    return stream[:_GZIP_HEAD_BYTES] + b"\xff" * (len(stream) - _GZIP_HEAD_BYTES)
