"""Error bodies, limit headers and durations in the shapes that OpenAI's API sends."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from airflow_provider_llmbatch.simulator.admission import Kind, Refusal, Standing

_PER_MINUTE = {"requests": "requests per min (RPM)", "tokens": "tokens per min (TPM)"}
_LEARN_MORE = "Visit https://platform.openai.com/account/rate-limits to learn more."


class ApiError(Exception):
    """
    An answer other than a completion.

    :param status: HTTP status.
    :param message: what a person reads.
    :param type: OpenAI's ``error.type``.
    :param code: OpenAI's ``error.code``.
    :param param: the parameter at fault.
    :param headers: headers beside those of every reply.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(message, type=type, code=code, param=param)
        self.headers = dict(headers or {})


def error_body(message: str, *, type: str | None, code: str | None, param: str | None = None) -> bytes:
    """Return OpenAI's error object as JSON."""
    return json_bytes({"error": {"message": message, "type": type, "param": param, "code": code}})


def json_bytes(value: Any) -> bytes:
    """Return ``value`` as UTF-8 JSON; lone surrogates become question marks."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def unknown_key(key: str | None) -> ApiError:
    """Return the 401 for a missing or unknown key; a known shape of the key is echoed, as OpenAI does."""
    if not key:
        return ApiError(
            401,
            "You didn't provide an API key. You need to provide your API key in an Authorization header "
            "using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
        )
    return ApiError(
        401,
        f"Incorrect API key provided: {masked(key)}. You can find your API key at "
        "https://platform.openai.com/account/api-keys.",
        code="invalid_api_key",
    )


def unknown_model(model: str) -> ApiError:
    """Return the 404 for a model that is not among those that exist."""
    return ApiError(
        404,
        f"The model `{model}` does not exist or you do not have access to it.",
        code="model_not_found",
    )


def over_window(window: int, prompt: int, output: int) -> ApiError:
    """Return the 400 for a request that does not fit into the model's window."""
    return ApiError(
        400,
        f"This model's maximum context length is {window} tokens. However, you requested {prompt + output} "
        f"tokens ({prompt} in the messages, {output} in the completion). Please reduce the length of the "
        "messages or completion.",
        code="context_length_exceeded",
        param="messages",
    )


def not_built(method: str, path: str) -> ApiError:
    """Return the 501 for a part of OpenAI's API that the simulator does not play."""
    return ApiError(
        501,
        f"The simulator answers chat completions only; {method} {path} is not built.",
        type="not_implemented",
        code="not_implemented",
    )


def masked(key: str) -> str:
    """Return the key with its middle starred out: 8 and 4 characters of a long one, 2 of a short one."""
    if len(key) >= 20:
        return f"{key[:8]}{'*' * (len(key) - 12)}{key[-4:]}"
    return f"{key[:2]}{'*' * max(1, len(key) - 2)}"


def over_limit(refusal: Refusal, model: str, account: str) -> ApiError:
    """Return the 429 for a refusal, with true waits in headers and text."""
    where = f"{model} in organization org-{account} on {_PER_MINUTE[refusal.kind]}"
    if refusal.wait_s is None:
        message = (
            f"Request too large for {where}: Limit {refusal.limit}, Requested {refusal.requested}. "
            f"The input or output tokens must be reduced in order to run successfully. {_LEARN_MORE}"
        )
        return ApiError(429, message, type=refusal.kind, code="rate_limit_exceeded")
    wait_ms = math.ceil(refusal.wait_s * 1000)
    message = (
        f"Rate limit reached for {where}: Limit {refusal.limit}, Used {refusal.used}, "
        f"Requested {refusal.requested}. Please try again in {go_duration(wait_ms / 1000)}. {_LEARN_MORE}"
    )
    headers = {"retry-after": _decimal(wait_ms / 1000), "retry-after-ms": str(wait_ms)}
    return ApiError(429, message, type=refusal.kind, code="rate_limit_exceeded", headers=headers)


def limit_headers(standings: Mapping[Kind, Standing]) -> dict[str, str]:
    """Return the ``x-ratelimit-*`` headers."""
    headers = {}
    for kind, standing in standings.items():
        headers[f"x-ratelimit-limit-{kind}"] = str(standing.limit)
        headers[f"x-ratelimit-remaining-{kind}"] = str(standing.remaining)
        headers[f"x-ratelimit-reset-{kind}"] = go_duration(standing.reset_s)
    return headers


def go_duration(seconds: float) -> str:
    """Return ``6m0s``, ``1.5s``, ``20ms``: rounded up to milliseconds, in the notation of Go."""
    total_ms = math.ceil(round(seconds * 1000, 3))
    if total_ms <= 0:
        return "0s"
    if total_ms < 1000:
        return f"{total_ms}ms"
    minutes, ms = divmod(total_ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(ms / 1000)}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _decimal(seconds: float) -> str:
    """Return up to three decimals, without zeros at the end."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")
