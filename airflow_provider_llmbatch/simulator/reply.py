"""Completions that depend on nothing but the request."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.simulator import text_sample
from airflow_provider_llmbatch.simulator.chat import ChatRequest
from airflow_provider_llmbatch.simulator.scenario import Fault
from airflow_provider_llmbatch.simulator.schema_sample import document
from airflow_provider_llmbatch.simulator.shapes import ApiError

#: Hidden thought of a request that names a reasoning effort.
REASONING_TOKENS = {"minimal": 16, "low": 64, "medium": 256, "high": 1024}
#: Prompts from this size on count half of themselves as cached, in steps.
CACHED_FROM_TOKENS = 1024
CACHED_STEP_TOKENS = 128

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What the model answers."""

    content: str | None
    finish_reason: str
    #: hidden thought included
    completion_tokens: int
    reasoning_tokens: int = 0
    refusal: str | None = None


def compose(request: ChatRequest, fault: Fault, count: Count, *, output_words: int) -> Completion:
    """
    Return the completion of ``request`` with the fault's changes to it.

    :raises ApiError: when the schema of the request cannot be answered.
    """
    if fault.refusal is not None:
        return Completion(
            content=None, finish_reason="stop", refusal=fault.refusal, completion_tokens=count(fault.refusal)
        )
    if fault.content_filter == "reply":
        return Completion(content=None, finish_reason="content_filter", completion_tokens=0)
    if fault.sets("content"):
        content, reason = fault.content, "stop"
        tokens, thought = count(content or ""), 0
    else:
        content, reason, tokens, thought = _within_cap(request, _content(request, output_words), count)
    if fault.truncate and content is not None:
        content, reason = content[: len(content) // 2], "length"
        tokens = count(content) + thought
    return Completion(
        content=content,
        finish_reason=fault.finish_reason or reason,
        completion_tokens=tokens,
        reasoning_tokens=thought,
    )


def completion_body(request: ChatRequest, completion: Completion, fault: Fault, now: float) -> dict[str, Any]:
    """Return OpenAI's ``chat.completion`` object."""
    body: dict[str, Any] = {
        "id": f"chatcmpl-{request.sha[:29]}",
        "object": "chat.completion",
        "created": int(now),
        "model": request.model,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": completion.content,
                    "refusal": completion.refusal,
                    "annotations": [],
                },
                "logprobs": None,
                "finish_reason": completion.finish_reason,
            }
        ],
        "usage": fault.usage if fault.sets("usage") else usage(request, completion),
        "service_tier": "default",
        "system_fingerprint": "fp_simulator",
    }
    if fault.usage == "missing":
        del body["usage"]
    if fault.content_filter == "reply":
        body["choices"][0]["content_filter_results"] = {"violence": {"filtered": True, "severity": "high"}}
    return body


def usage(request: ChatRequest, completion: Completion) -> dict[str, Any]:
    """Return OpenAI's ``usage`` object."""
    prompt = request.prompt_tokens
    cached = prompt // 2 // CACHED_STEP_TOKENS * CACHED_STEP_TOKENS if prompt >= CACHED_FROM_TOKENS else 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion.completion_tokens,
        "total_tokens": prompt + completion.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": completion.reasoning_tokens, "audio_tokens": 0},
    }


def latency(request: ChatRequest, mean_s: float, jitter: float) -> float:
    """Return the seconds that the call takes; the same request always takes as long."""
    return mean_s * (1 + jitter * Random(f"latency/{request.sha}").uniform(-1, 1))


def _content(request: ChatRequest, output_words: int) -> str:
    rng = Random(request.sha)
    if request.response_type != "text" and request.schema is not None:
        try:
            return json.dumps(document(request.schema, request.sha), ensure_ascii=False)
        except InputError as error:
            raise ApiError(
                400, f"Invalid schema for response_format: {error}", param="response_format"
            ) from error
    if request.response_type == "json_object":
        answer = {"answer": text_sample.words(rng, 5), "confidence": round(rng.random(), 2)}
        return json.dumps(answer)
    return text_sample.prose(rng, rng.randint(max(1, output_words // 2), output_words + output_words // 2))


def _within_cap(request: ChatRequest, content: str, count: Count) -> tuple[str, str, int, int]:
    """Return content, finish reason, tokens and thought, cut to the request's output cap."""
    thought = REASONING_TOKENS.get(str(request.params.get("reasoning_effort")), 0)
    tokens = count(content)
    cap = request.output_cap
    if cap is None or thought + tokens <= cap:
        return content, "stop", thought + tokens, thought
    thought = min(thought, cap)
    return _cut(content, cap - thought, count), "length", cap, thought


def _cut(content: str, tokens: int, count: Count) -> str:
    """Return the longest start of ``content`` that has at most ``tokens`` tokens, give or take a word."""
    shortest, longest = 0, len(content)
    while shortest < longest:
        middle = (shortest + longest + 1) // 2
        if count(content[:middle]) <= tokens:
            shortest = middle
        else:
            longest = middle - 1
    return content[:shortest]
