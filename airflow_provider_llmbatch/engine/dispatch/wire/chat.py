"""
Chat completions, the API that OpenAI-compatible services share.

:func:`decode` is total: any status, headers and bytes become a reply or a failure, never an exception.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_llmbatch.engine.exchange import Failure, Reply
from airflow_provider_llmbatch.engine.items import Json, Message, Usage

#: How much of a foreign body an error message quotes.
EXCERPT = 200
#: Tokens above this are nobody's usage; a field that says so is left out.
LARGEST_COUNT = 10**12

# Made once: json.dumps with options would build a new encoder for every request.
_escaped = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode


def encode(model: str, messages: Sequence[Message], params: Mapping[str, Json]) -> bytes:
    """Return the request's body."""
    body = {"model": model, "messages": messages, **params}
    return _escaped(body).encode()


def decode(status: int, headers: Mapping[str, str], body: bytes) -> Reply | Failure:
    """
    Read what a service sent.

    :param status: HTTP status.
    :param headers: lower-case names.
    :param body: decompressed; secrets already taken out.
    """
    request_id = headers.get("x-request-id") or headers.get("apim-request-id")
    data = _parse(body)
    if status >= 300 or status < 200:
        return _error(status, data, body, request_id)
    if not isinstance(data, dict):
        return Failure(
            kind="malformed",
            status=status,
            message=f"The body is no JSON object: {_excerpt(body)}",
            maybe_paid=True,
            request_id=request_id,
        )
    if data.get("error"):
        return _embedded(data, body, request_id)
    return _reply(status, data, request_id)


def _reply(status: int, data: dict[str, Any], request_id: str | None) -> Reply | Failure:
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return Failure(
            kind="malformed",
            status=status,
            message=f"No message in the reply; it has the keys {_keys(data)}. Is this chat completions?",
            maybe_paid=True,
            request_id=request_id,
            keys=tuple(_keys(data)),
        )
    text, refusal = _text(message.get("content")), _string(message.get("refusal"))
    finish_reason = _string(choice.get("finish_reason"))
    if not text and not refusal and finish_reason not in ("length", "max_tokens", "content_filter"):
        return Failure(
            kind="malformed",
            status=status,
            message=f"The reply has no text (finish_reason {finish_reason!r}).",
            maybe_paid=True,
            request_id=request_id,
        )
    return Reply(
        text=text,
        refusal=refusal,
        finish_reason=finish_reason,
        usage=usage(data.get("usage")),
        model=_string(data.get("model")),
        request_id=request_id or _string(data.get("id")),
        reasoning=_string(message.get("reasoning_content")) or _string(message.get("reasoning")),
    )


def usage(data: Any) -> Usage | None:
    """Read a usage object; None when it says nothing that can be used."""
    if not isinstance(data, dict):
        return None
    prompt, completion = _count(data.get("prompt_tokens")), _count(data.get("completion_tokens"))
    whole = _count(data.get("total_tokens"))
    if prompt is None and completion is not None and whole is not None:
        prompt = max(0, whole - completion)
    if completion is None and prompt is not None and whole is not None:
        completion = max(0, whole - prompt)
    if prompt is None or completion is None:
        return None
    cached = _count(_nested(data, "prompt_tokens_details", "cached_tokens")) or 0
    reasoning = _count(_nested(data, "completion_tokens_details", "reasoning_tokens")) or 0
    return Usage(
        prompt=prompt,
        cached=min(cached, prompt),
        completion=completion,
        reasoning=min(reasoning, completion),
    )


def _embedded(data: dict[str, Any], body: bytes, request_id: str | None) -> Failure:
    """A 2xx whose body is an error: judged by the status inside, else as a broken reply."""
    error = data["error"]
    inner = error.get("code", error.get("status")) if isinstance(error, dict) else None
    status = inner if isinstance(inner, int) and not isinstance(inner, bool) else None
    if status is None and isinstance(inner, str) and inner.isdecimal() and len(inner) == 3:
        status = int(inner)
    if status is None or not 300 <= status <= 599:
        failure = _error(502, data, body, request_id)
        return failure
    return _error(status, data, body, request_id)


def _error(status: int, data: Any, body: bytes, request_id: str | None) -> Failure:
    error = data.get("error", data) if isinstance(data, dict) else None
    if isinstance(error, str):
        error = {"message": error}
    if not isinstance(error, dict):
        return Failure(
            kind="malformed" if status >= 400 else "http",
            status=status,
            message=_excerpt(body),
            maybe_paid=status >= 500,
            request_id=request_id,
        )
    inner = error.get("innererror")
    code = _name(error.get("code"))
    if code is None and isinstance(inner, dict):
        code = _name(inner.get("code"))
    return Failure(
        kind="http",
        status=status,
        code=code,
        type=_name(error.get("type")),
        param=_name(error.get("param")),
        message=_message(error, inner, body),
        maybe_paid=status >= 500,
        request_id=request_id,
    )


def _message(error: dict[str, Any], inner: Any, body: bytes) -> str:
    message = _string(error.get("message")) or _string(error.get("detail")) or _excerpt(body)
    filters = inner.get("content_filter_result") if isinstance(inner, dict) else None
    if isinstance(filters, dict):
        hit = [str(k) for k, v in filters.items() if isinstance(v, dict) and v.get("filtered") is True]
        message = f"{message} (filtered: {', '.join(hit)})" if hit else message
    return message[: 2 * EXCERPT]


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _text(content: Any) -> str | None:
    if isinstance(content, list):
        parts = [_string(part.get("text")) for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if part) or None
    return _string(content)


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _name(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)[:EXCERPT]
    return value[:EXCERPT] if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= LARGEST_COUNT else None


def _nested(data: dict[str, Any], outer: str, inner: str) -> Any:
    details = data.get(outer)
    return details.get(inner) if isinstance(details, dict) else None


def _keys(data: dict[str, Any]) -> list[str]:
    return [str(key)[:40] for key in list(data)[:12]]


def _excerpt(body: bytes) -> str:
    text = " ".join(body[: 4 * EXCERPT].decode("utf-8", "replace").split())
    return repr(text[:EXCERPT]) if text else "an empty body"
