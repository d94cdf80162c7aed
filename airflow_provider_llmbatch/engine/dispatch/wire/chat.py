"""
Chat completions, the API that OpenAI-compatible services share.

:func:`decode` is total: any status, headers and bytes become a reply or a failure, never an exception.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_llmbatch.engine.dispatch.wire import errors
from airflow_provider_llmbatch.engine.exchange import Failure, Reply
from airflow_provider_llmbatch.engine.items import Json, Message, Usage

#: Tokens above this are nobody's usage; a field that says so is left out.
LARGEST_COUNT = 10**12

_REQUEST_IDS = ("x-request-id", "apim-request-id", "x-litellm-call-id")
_CUT, _FILTERED = "length", "content_filter"
#: Other services' words for the end of a reply. Words that are not here stand for an ordinary end.
_ENDS = {
    "length": _CUT,
    "max_tokens": _CUT,
    "max_output_tokens": _CUT,
    "model_length": _CUT,  # Mistral: the context window is full
    "content_filter": _FILTERED,
    "content-filter": _FILTERED,
    "safety": _FILTERED,  # this and the next: Gemini behind a proxy
    "prohibited_content": _FILTERED,
    "blocklist": _FILTERED,
    "recitation": _FILTERED,
    "spii": _FILTERED,
}
#: Ends of a reply that is not whole, through no fault of the request.
_BROKEN = frozenset(
    {
        "abort",  # vLLM, SGLang
        "aborted",
        "cancelled",
        "error",  # Mistral, OpenRouter
        "insufficient_system_resource",  # DeepSeek
        "load",  # this and the next: Ollama
        "unload",
    }
)
#: Types of the parts of a content that are its text; thoughts and other things have types of their own.
_TEXT_PARTS = (None, "text", "output_text")
_THOUGHT_PARTS = ("thinking", "reasoning")

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
    request_id = next(filter(None, (errors.name(headers.get(key)) for key in _REQUEST_IDS)), None)
    data = _parse(body)
    if not 200 <= status < 300:
        return errors.failure(status, data, body, request_id)
    if not isinstance(data, dict):
        return _malformed(status, f"The body is no JSON object: {_quoted(body)}", request_id)
    choice = _first(data.get("choices"))
    embedded = _embedded(data, choice)
    if embedded is not None:
        # Judged by the status inside; without one, as cut short.
        return errors.failure(errors.status_inside(embedded) or 502, embedded, body, request_id)
    return _reply(status, data, choice, request_id)


def usage(data: Any) -> Usage | None:
    """
    Read a usage object; None when it says nothing that can be used.

    What the total has beyond prompt and completion is output that no field names: some services leave the
    reasoning out of the completion.
    """
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
    completion = max(completion, (whole or 0) - prompt)
    cached = _count(_nested(data, "prompt_tokens_details", "cached_tokens")) or 0
    reasoning = _count(_nested(data, "completion_tokens_details", "reasoning_tokens"))
    if reasoning is None:
        reasoning = _count(data.get("reasoning_tokens")) or 0
    return Usage(
        prompt=prompt,
        cached=min(cached, prompt),
        completion=completion,
        reasoning=min(reasoning, completion),
    )


def _reply(
    status: int, data: dict[str, Any], choice: dict[str, Any] | None, request_id: str | None
) -> Reply | Failure:
    message = choice.get("message") if choice else None
    if choice is None or not isinstance(message, dict):
        keys = errors.keys(data)
        told = f"No message in the reply; it has the keys {keys}. Is this chat completions?"
        return _malformed(status, told, request_id, tuple(keys))
    said = errors.name(choice.get("finish_reason"))
    end = _ENDS.get(said.lower(), said) if said else None
    text, refusal = _text(message.get("content")), _string(message.get("refusal"))
    if said and said.lower() in _BROKEN:
        return _malformed(status, f"The service broke the reply off (finish_reason {said!r}).", request_id)
    if said == "refusal":
        refusal = refusal or text or said
    if not text and not refusal and end not in (_CUT, _FILTERED):
        what = "calls tools and has no text" if message.get("tool_calls") else "has no text"
        # A model may say nothing, as an answer; that is for the check, and no trouble of the service.
        if message.get("tool_calls") or said is None or not _is_silent(message):
            return _malformed(status, f"The reply {what} (finish_reason {said!r}).", request_id)
    return Reply(
        text=text,
        refusal=refusal,
        finish_reason=end,
        usage=usage(data.get("usage")),
        model=errors.name(data.get("model")),
        request_id=request_id or errors.name(data.get("id")),
        reasoning=_reasoning(message),
    )


def _malformed(status: int, message: str, request_id: str | None, keys: tuple[str, ...] = ()) -> Failure:
    return Failure(
        kind="malformed", status=status, message=message, maybe_paid=True, request_id=request_id, keys=keys
    )


def _embedded(data: dict[str, Any], choice: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what holds the error of a 2xx that is none."""
    error = data.get("error") or (choice.get("error") if choice else None)
    if error:
        return error if isinstance(error, dict) else {"message": error}
    return data if data.get("object") == "error" else None


def _quoted(body: bytes) -> str:
    """Quote a page; what was to be a reply holds the model's words, and is not for logs."""
    if body.startswith((b"data:", b"event:")):
        return "a stream of events, which was not asked for."
    if body.lstrip()[:1] not in (b"{", b"[", b'"'):
        return errors.excerpt(body)
    try:
        body.decode()
    except UnicodeDecodeError:
        return f"{len(body)} bytes that are not UTF-8."
    return f"{len(body)} bytes of JSON that break off or have another form."


def _first(choices: Any) -> dict[str, Any] | None:
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else None


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _text(content: Any) -> str | None:
    if isinstance(content, list):
        parts = (part for part in content if isinstance(part, dict) and part.get("type") in _TEXT_PARTS)
        return "".join(filter(None, (_string(part.get("text")) for part in parts))) or None
    return _string(content)


def _is_silent(message: dict[str, Any]) -> bool:
    content = message.get("content", 0)
    return content is None or content == "" or isinstance(content, list)


def _reasoning(message: dict[str, Any]) -> str | None:
    """Return the thought: in a field (vLLM, SGLang, llama.cpp, Ollama), or in parts (Mistral)."""
    field = _string(message.get("reasoning_content")) or _string(message.get("reasoning"))
    content = message.get("content")
    if field or not isinstance(content, list):
        return field
    parts = [part for part in content if isinstance(part, dict) and part.get("type") in _THOUGHT_PARTS]
    thoughts = (_text(part.get("thinking")) or _string(part.get("text")) for part in parts)
    return "".join(filter(None, thoughts)) or None


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= LARGEST_COUNT else None


def _nested(data: dict[str, Any], outer: str, inner: str) -> Any:
    details = data.get(outer)
    return details.get(inner) if isinstance(details, dict) else None
