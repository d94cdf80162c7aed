"""Durations, error bodies and headers as OpenAI sends them."""

from __future__ import annotations

import json

import pytest

from airflow_provider_llmbatch.simulator.admission import Refusal, Standing
from airflow_provider_llmbatch.simulator.shapes import go_duration, limit_headers, masked, over_limit


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.0004, "1ms"),
        (0.02, "20ms"),
        (0.9999, "1s"),
        (1.0, "1s"),
        (1.5, "1.5s"),
        (7.66, "7.66s"),
        (59.1, "59.1s"),
        (59.9996, "1m0s"),
        (252.172, "4m12.172s"),
        (360.0, "6m0s"),
        (3723.5, "1h2m3.5s"),
        (7200.0, "2h0m0s"),
    ],
)
def test_durations_are_written_as_go_writes_them(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


def test_a_refusal_for_tokens_reads_like_openais() -> None:
    refusal = Refusal(kind="tokens", limit=30_000, used=29_500, requested=1200, wait_s=1.2)
    error = over_limit(refusal, "m-1", "acme")
    told = json.loads(error.body)["error"]
    assert error.status == 429
    assert told["message"].startswith(
        "Rate limit reached for m-1 in organization org-acme on tokens per min (TPM): Limit 30000, "
        "Used 29500, Requested 1200. Please try again in 1.2s."
    )
    assert (told["type"], told["param"], told["code"]) == ("tokens", None, "rate_limit_exceeded")
    assert error.headers == {"retry-after": "1.2", "retry-after-ms": "1200"}


def test_a_request_above_the_whole_limit_is_told_to_shrink_and_not_to_wait() -> None:
    refusal = Refusal(kind="tokens", limit=30_000, used=0, requested=30_601, wait_s=None)
    error = over_limit(refusal, "m-1", "acme")
    message = json.loads(error.body)["error"]["message"]
    assert message.startswith("Request too large for m-1 in organization org-acme on tokens per min (TPM)")
    assert "Limit 30000, Requested 30601. The input or output tokens must be reduced" in message
    assert error.headers == {}


@pytest.mark.parametrize("wait_s", [0.0001, 0.0201, 1.2345, 59.9999, 1234.5611, 86_399.0001])
def test_a_told_wait_is_never_shorter_than_the_true_one(wait_s: float) -> None:
    error = over_limit(Refusal(kind="requests", limit=1, used=1, requested=1, wait_s=wait_s), "m-1", "acme")
    assert float(error.headers["retry-after"]) >= wait_s
    assert int(error.headers["retry-after-ms"]) / 1000 >= wait_s


def test_limit_headers_name_limit_rest_and_reset() -> None:
    headers = limit_headers({"requests": Standing(limit=60, remaining=59, reset_s=360.0)})
    assert headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "6m0s",
    }


@pytest.mark.parametrize("key", ["x", "sk-1", "sk-short-key", "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"])
def test_a_masked_key_hides_most_of_itself(key: str) -> None:
    hidden = masked(key)
    assert key not in hidden or len(key) == 1
    assert "*" in hidden
