"""
The errors of OpenAI-compatible services, in the dialects they come in.

Known forms of the object, from the services' public documentation and source:

* OpenAI, Azure, llama.cpp, vLLM, Ollama: ``{"error": {"message", "type", "param", "code"}}``; with llama.cpp,
  vLLM and Azure the code is often no more than the status; Ollama's own paths answer ``{"error": "text"}``
* SGLang, older vLLM: the object itself, marked ``"object": "error"``
* Mistral: the same with a ``message`` that is an object, a list, or JSON in a string
* LiteLLM's proxy: OpenAI's form with ``"None"`` for what is not known
* FastAPI's checks: ``{"detail": "text"}`` or ``{"detail": [{"loc", "msg", "type"}]}``; llama-cpp-python sends
  the latter as a text with status 500
* Azure's gateway: ``{"statusCode", "message"}``; Gemini's: a list with one object
"""

from __future__ import annotations

import json
import re
from typing import Any

from airflow_provider_llmbatch.engine.exchange import Failure

#: How much of a foreign body an error message quotes, and the longest message. Characters.
EXCERPT = 200
MESSAGE_LENGTH = 400
#: Longest name of a code, a parameter, a model or a request. Characters.
NAME_LENGTH = 200

#: Where a message may stand, the likeliest first.
_MESSAGES = ("message", "detail", "msg", "error", "error_description")
#: How deep messages are nested at most: an object in a list in a string in an object.
_NESTING = 5
_FILTERS = ("content_filter_result", "content_filter_results")
# What a check of pydantic's says about a field: its name, and what is wrong with it. It comes in JSON or in
# Python's notation, escaped or not, and stands beside the value that was sent, which may be a prompt.
_CHECK = re.compile(r"loc\W{1,20}body\W{1,20}(\w+)(?:.{0,80}?\Wmsg\W{1,20}([^'\"\\]{1,120}))?", re.DOTALL)
_EXTRA = re.compile(r"extra (?:inputs|fields)", re.IGNORECASE)
UNKNOWN_PARAMETER, INVALID_PARAMETER = "unknown_parameter", "invalid_parameter"


def failure(status: int, data: Any, body: bytes, request_id: str | None) -> Failure:
    """
    Read what came with an error status.

    :param status: the HTTP status, or the one that stands in the body of a 200.
    :param data: the body as JSON; None when it is none.
    :param body: the same in bytes.
    """
    error, is_early = _object(data), status < 200
    if is_early or error is None:
        return Failure(
            kind="malformed" if is_early or status >= 400 else "http",
            status=status,
            message=excerpt(body),
            maybe_paid=is_early or status >= 500,
            request_id=request_id,
        )
    inner = error.get("innererror", error.get("inner_error"))
    inner = inner if isinstance(inner, dict) else {}
    code, param, message = _code(error, inner, status), name(error.get("param")), _message(error, inner)
    if check := _CHECK.search(body[:4000].decode("utf-8", "replace")):
        wrong = check[2] or "the service's check of the request was not passed"
        code = UNKNOWN_PARAMETER if _EXTRA.match(wrong) else INVALID_PARAMETER
        param = name(check[1])
        message = shown(f"{param}: {wrong}", MESSAGE_LENGTH)
    return Failure(
        kind="http",
        status=status,
        code=code,
        type=name(error.get("type")),
        param=param,
        message=message,
        maybe_paid=status >= 500,
        request_id=request_id,
    )


def status_inside(error: Any) -> int | None:
    """Return the error status that an error object names itself, if it names one."""
    for key in ("code", "status", "statusCode"):
        inner = error.get(key) if isinstance(error, dict) else None
        if isinstance(inner, str) and inner.isascii() and inner.isdigit() and len(inner) == 3:
            inner = int(inner)
        if isinstance(inner, int) and 300 <= inner <= 599:
            return inner
    return None


def name(value: Any) -> str | None:
    """Return a short name, or None for what is no name."""
    if isinstance(value, int) and not isinstance(value, bool):
        # The first digits tell enough; Python refuses to write out very long integers.
        return shown(str(value)) if abs(value) < 10**18 else "a very large number"
    if not isinstance(value, str) or value in ("", "None", "null"):
        return None
    return shown(value)


def shown(text: str, length: int = NAME_LENGTH) -> str:
    """Return the beginning of a text, without what a database or a terminal stumbles over."""
    text = text[:length].encode("utf-8", "replace").decode()
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def keys(data: dict[str, Any]) -> list[str]:
    """Return the first keys of an object, for messages about foreign shapes."""
    return [shown(key, 40) for key in list(data)[:12]]


def excerpt(body: bytes) -> str:
    """Quote the beginning of a body that is no JSON."""
    text = " ".join(body[: 4 * EXCERPT].decode("utf-8", "replace").split())
    return repr(shown(text, EXCERPT)) if text else "an empty body"


def _object(data: Any) -> dict[str, Any] | None:
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    return error if isinstance(error, dict) else data


def _code(error: dict[str, Any], inner: dict[str, Any], status: int) -> str | None:
    """Return the code; one that repeats the status is none, and must not hide the type."""
    for code in (name(error.get("code")), name(inner.get("code"))):
        if code is not None and code != str(status):
            return code
    return None


def _message(error: dict[str, Any], inner: dict[str, Any]) -> str:
    message = _told(error) or f"An error without a message; it has the keys {keys(error)}."
    filters: dict[str, Any] = next((inner[key] for key in _FILTERS if isinstance(inner.get(key), dict)), {})
    hit = [str(k)[:40] for k, v in filters.items() if isinstance(v, dict) and v.get("filtered") is True]
    message = f"{message[:EXCERPT]} (filtered: {', '.join(hit)})" if hit else message
    return shown(message, MESSAGE_LENGTH)


def _told(said: Any, depth: int = 0) -> str | None:
    """Find the words in a message, which may be nested or JSON in a string; what was sent is not repeated."""
    if depth > _NESTING:
        return None
    if isinstance(said, str):
        return (_told(_json(said), depth + 1) if said[:1] in ("{", "[") else None) or said
    if isinstance(said, list):
        return "; ".join(filter(None, (_told(each, depth + 1) for each in said[:3])))
    if not isinstance(said, dict):
        return None
    words = next(filter(None, (_told(said.get(key), depth + 1) for key in _MESSAGES)), None)
    place = said.get("loc")
    if words and isinstance(place, list):
        words = f"{'.'.join(str(part)[:40] for part in place[:8])}: {words}"
    return words


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
