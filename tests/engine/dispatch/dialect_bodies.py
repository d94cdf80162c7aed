"""
Bodies of services that are not OpenAI: the service, the status, the body, and what there is to find in it.

They are made up after the forms in the services' public documentation and issue trackers.
"""

from __future__ import annotations

import json
from typing import Any


def openai(message: str, **further: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": None, "param": None, "code": None, **further}}


def bare(message: Any, **further: Any) -> dict[str, Any]:
    return {"object": "error", "message": message, "param": None, **further}


def forbidden(name: str) -> dict[str, Any]:
    return {
        "type": "extra_forbidden",
        "loc": ["body", name],
        "msg": "Extra inputs are not permitted",
        "input": "?",
    }


TOO_LONG = [
    (
        "vllm",
        400,
        openai(
            "This model's maximum context length is 4096 tokens. However, you requested 4200 tokens.",
            type="BadRequestError",
            code=400,
        ),
    ),
    (
        "vllm, older",
        400,
        bare(
            "The decoder prompt (length 9000) is longer than the maximum model length of 4096.",
            type="BadRequestError",
            code=400,
        ),
    ),
    (
        "sglang",
        400,
        bare(
            "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
            type="BadRequestError",
            code=400,
        ),
    ),
    (
        "sglang, newer",
        400,
        bare("Input length (9000 tokens) exceeds the maximum allowed length (4090 tokens).", code=400),
    ),
    (
        "llama.cpp",
        400,
        openai("the request exceeds the available context size", type="exceed_context_size_error", code=400),
    ),
    ("llama.cpp, older", 500, openai("too large", type="exceed_context_size_error", code=500)),
    (
        "llama-cpp-python",
        400,
        openai(
            "This model's maximum context length is 512 tokens.",
            type="invalid_request_error",
            code="context_length_exceeded",
        ),
    ),
    (
        "litellm",
        400,
        openai("litellm.ContextWindowExceededError: a prompt of 9000", type=None, param=None, code="400"),
    ),
    (
        "mistral",
        400,
        bare(
            "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
            type="invalid_request_prompt",
            code="3051",
        ),
    ),
    (
        "azure",
        400,
        openai(
            "This model's maximum context length is 8192 tokens.",
            code="context_length_exceeded",
            param="messages",
        ),
    ),
    (
        "anthropic behind a proxy",
        400,
        openai("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
    ),
]
STOPS = [
    ("ollama", 404, openai("model 'llama9' not found", type="not_found_error")),
    ("ollama, its own paths", 404, {"error": "model 'llama9' not found"}),
    ("vllm", 404, openai("The model `x` does not exist.", type="NotFoundError", param="model", code=404)),
    (
        "litellm",
        400,
        openai("/chat/completions: Invalid model name passed in model=x", param="model", code="400"),
    ),
    ("mistral", 400, bare("Invalid model: mistral-huge", type="invalid_model", code="1500")),
    ("azure", 404, openai("The API deployment for this resource does not exist.", code="DeploymentNotFound")),
    ("azure, no such path", 404, openai("Resource not found", code="404")),
    ("fastapi", 404, {"detail": "Not Found"}),
]
KEYS = [
    ("litellm", 401, openai("Authentication Error, no key", type="auth_error", param="None", code="401")),
    ("litellm, expired", 400, openai("Authentication Error - Expired Key.", type="expired_key", code="400")),
    ("litellm, no database", 400, openai("No connected db.", type="no_db_connection", code="400")),
    ("litellm, budget", 400, openai("Budget has been exceeded!", type="budget_exceeded", code="400")),
    ("azure's gateway", 401, {"statusCode": 401, "message": "Access denied due to invalid key."}),
    ("azure", 401, openai("Access denied due to invalid subscription key.", code="401")),
    ("mistral", 401, {"message": "Unauthorized", "request_id": "r"}),
    ("vllm", 401, {"error": "Unauthorized"}),
    ("llama.cpp", 401, openai("Invalid API Key", type="authentication_error", code=401)),
    ("ollama's cloud", 401, {"error": "unauthorized", "signin_url": "https://host/connect"}),
]
THROTTLED = [
    (
        "azure",
        429,
        openai("You have exceeded token rate limit of your tier. Please retry after 9 seconds.", code="429"),
        9.0,
    ),
    (
        "litellm",
        429,
        openai("No deployments available for selected model, Try again in 60 seconds.", code="429"),
        60.0,
    ),
    ("openai", 429, openai("Rate limit reached. Please try again in 1m2.5s. Visit", type="tokens"), 62.5),
    (
        "openai",
        429,
        openai("Limit 90, Used 90, Requested 1. Please try again in 20ms.", type="requests"),
        0.02,
    ),
    ("mistral", 429, bare("Requests rate limit exceeded", type="rate_limited", code="1300"), None),
    ("gemini", 429, [openai("Resource exhausted", code=429, status="RESOURCE_EXHAUSTED")], None),
]
AGAIN = [
    ("llama.cpp, loading", 503, openai("Loading model", type="unavailable_error", code=503)),
    ("litellm", 500, openai("litellm.InternalServerError: Connection error.", code="500")),
    ("ollama", 500, {"error": "model runner has unexpectedly stopped"}),
    ("sglang", 503, bare("The server is shutting down", type="ServiceUnavailable", code=503)),
]
REWRITES = [
    (
        "mistral",
        422,
        bare({"detail": [forbidden("max_completion_tokens")]}, type="invalid_request_error", code=None),
        "max_completion_tokens",
    ),
    (
        "mistral, in a string",
        422,
        bare(json.dumps({"detail": [forbidden("top_k")]}), type="internal_error_proxy", code="1000"),
        "top_k",
    ),
    ("mistral, a list", 422, {"object": "Error", "detail": [forbidden("top_k")], "code": 3001}, "top_k"),
    (
        "vllm, in python's notation",
        400,
        bare(str([{**forbidden("top_k"), "loc": ("body", "top_k")}]), type="BadRequestError", code=400),
        "top_k",
    ),
    (
        "fastapi, older",
        422,
        {
            "detail": [
                {"loc": ["body", "top_k"], "msg": "extra fields not permitted", "type": "value_error.extra"}
            ]
        },
        "top_k",
    ),
    (
        "litellm",
        400,
        openai(
            "litellm.UnsupportedParamsError: x does not support parameters: ['top_k'], for model=m",
            code="400",
        ),
        "top_k",
    ),
    (
        "azure",
        400,
        openai("Unrecognized request argument supplied: top_k", type="invalid_request_error"),
        "top_k",
    ),
    (
        "openai",
        400,
        openai(
            "Unsupported parameter: 'max_completion_tokens' is not supported with this model.",
            param="max_completion_tokens",
            code="unsupported_parameter",
        ),
        "max_completion_tokens",
    ),
]
FILTERED = [
    (
        "litellm",
        400,
        openai("litellm.ContentPolicyViolationError: your request was rejected", type=None, code="400"),
    ),
    (
        "azure",
        400,
        openai(
            "The response was filtered due to the prompt triggering the content management policy.",
            code="content_filter",
            innererror={"code": "ResponsibleAIPolicyViolation"},
        ),
    ),
    ("azure, no code", 400, openai("Triggering Azure OpenAI's content management policy.", code="400")),
]
CHECKS = [
    (
        "llama-cpp-python",
        500,
        openai(
            "1 validation error:\n  {'type': 'float_parsing', 'loc': ('body', 'temperature'), 'msg': "
            "'Input should be a valid number', 'input': 'what was sent'}\n\n  File",
            type="internal_server_error",
        ),
    ),
    (
        "vllm, sglang",
        400,
        bare(
            "[{'type': 'float_parsing', 'loc': ('body', 'temperature'), 'msg': 'Input should be a valid "
            "number', 'input': 'what was sent'}]",
            code=400,
        ),
    ),
    (
        "fastapi",
        422,
        {
            "detail": [
                {
                    "type": "float_parsing",
                    "loc": ["body", "temperature"],
                    "msg": "Input should be a valid number",
                    "input": "what was sent",
                }
            ]
        },
    ),
]
