"""A chat completions request, read from the wire as far as the simulator needs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_llmbatch.simulator.shapes import ApiError

#: Tokens of every message beside its text (its role among them), and those before the reply.
MESSAGE_TOKENS = 4
REPLY_TOKENS = 3
#: Parameters that the model reads as text.
COUNTED_PARAMS = ("tools", "functions", "response_format")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a client asked for."""

    model: str
    #: the text of all messages, one after the other
    text: str
    #: the body without ``model`` and ``messages``
    params: Mapping[str, Any]
    prompt_tokens: int
    #: ``max_completion_tokens`` or ``max_tokens``
    output_cap: int | None
    #: identity of the question, see :attr:`.Arrival.sha`
    sha: str

    @property
    def response_type(self) -> str:
        """``text``, ``json_object`` or ``json_schema``."""
        return str((self.params.get("response_format") or {}).get("type", "text"))

    @property
    def schema(self) -> Any:
        """The JSON schema that was asked for, in either form that servers know; None without one."""
        wanted = self.params.get("response_format") or {}
        return (wanted.get("json_schema") or wanted).get("schema")


def read_chat(
    body: Any, sha: str, count: Callable[[str], int], *, deployment: str | None = None
) -> ChatRequest:
    """
    Read a decoded request body.

    :param body: what :func:`decode` returned.
    :param sha: its identity.
    :param count: counts the tokens of a text.
    :param deployment: the model when the path names it instead of the body.
    :raises ApiError: the 400 that OpenAI would answer.
    """
    if not isinstance(body, dict):
        raise _unreadable()
    model = body.get("model") or deployment
    if not isinstance(model, str) or not model:
        raise ApiError(400, "you must provide a model parameter")
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise _missing("messages")
    if not messages:
        raise _wrong("messages", "expected an array with minimum length 1", "empty_array")
    params = {name: value for name, value in body.items() if name not in ("model", "messages")}
    _refuse_unbuilt(params)
    _check_response_format(params)
    texts = [_text(message) for message in messages]
    return ChatRequest(
        model=model,
        text="\n".join(texts),
        params=params,
        prompt_tokens=_prompt_tokens(texts, params, count),
        output_cap=_output_cap(params),
        sha=sha,
    )


def decode(raw: bytes) -> tuple[Any, str]:
    """
    Return the JSON of a body and the SHA-256 that identifies the question.

    Key order and white space do not matter. What is no JSON is None and identified by its bytes.
    """
    try:
        body = json.loads(raw)
    except ValueError:
        return None, hashlib.sha256(raw).hexdigest()
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return body, hashlib.sha256(canonical.encode()).hexdigest()


def _unreadable() -> ApiError:
    return ApiError(
        400,
        "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your "
        "HTTP library correctly. The API expects a JSON payload, but what was sent was not valid JSON.)",
    )


def _refuse_unbuilt(params: Mapping[str, Any]) -> None:
    for name, value in (("stream", params.get("stream")), ("n", params.get("n") not in (None, 1))):
        if value:
            raise ApiError(
                501,
                f"The simulator does not answer requests with {name}={params[name]!r}; leave it out.",
                type="not_implemented",
                code="not_implemented",
                param=name,
            )


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)


def _prompt_tokens(texts: list[str], params: Mapping[str, Any], count: Callable[[str], int]) -> int:
    extras = [params[name] for name in COUNTED_PARAMS if params.get(name)]
    return (
        sum(MESSAGE_TOKENS + count(text) for text in texts)
        + REPLY_TOKENS
        + sum(count(json.dumps(extra, ensure_ascii=False, separators=(",", ":"))) for extra in extras)
    )


def _output_cap(params: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        cap = params.get(name)
        if cap is None:
            continue
        if not isinstance(cap, int) or isinstance(cap, bool):
            raise _wrong(name, "expected an integer", "invalid_type")
        if cap < 1:
            raise _wrong(name, "expected a value >= 1", "integer_below_min_value")
        return cap
    return None


def _check_response_format(params: Mapping[str, Any]) -> None:
    wanted = params.get("response_format")
    if wanted is None:
        return
    if not isinstance(wanted, dict) or wanted.get("type") not in ("text", "json_object", "json_schema"):
        raise _wrong("response_format", "expected type text, json_object or json_schema", "invalid_type")
    if not isinstance(wanted.get("schema", {}), dict):
        raise _wrong("response_format.schema", "expected an object", "invalid_type")
    if wanted["type"] != "json_schema":
        return
    named = wanted.get("json_schema")
    if not isinstance(named, dict) or not isinstance(named.get("schema"), dict):
        raise _missing("response_format.json_schema.schema")


def _missing(param: str) -> ApiError:
    return ApiError(
        400, f"Missing required parameter: '{param}'.", code="missing_required_parameter", param=param
    )


def _wrong(param: str, why: str, code: str) -> ApiError:
    return ApiError(400, f"Invalid '{param}': {why}.", code=code, param=param)
