"""What the tests of the advice share: failures, replies, and what is advised about them."""

from __future__ import annotations

from typing import Any

from airflow_provider_llmbatch.engine.dispatch.advise import History, advise
from airflow_provider_llmbatch.engine.exchange import Advice, Failure, Final, Reply
from airflow_provider_llmbatch.engine.items import Outcome

NOW = 1_795_953_600.0
FRESH = History(tries=1, max_tries=5, params=frozenset({"max_tokens", "temperature"}))
WORN = History(tries=5, max_tries=5)


def http(status: int, message: str = "no", **said: Any) -> Failure:
    return Failure(kind="http", status=status, message=message, **said)


def reply(**said: Any) -> Reply:
    usual = {"text": "fine", "refusal": None, "finish_reason": "stop", "usage": None}
    return Reply(**{**usual, "model": "m", "request_id": None, **said})


def advised(
    seen: Reply | Failure, history: History = FRESH, headers: dict[str, str] | None = None
) -> Advice | None:
    return advise(seen, headers or {}, history, NOW)


def final(advice: Advice | None) -> tuple[Outcome, str]:
    assert isinstance(advice, Final), advice
    return advice.outcome, advice.error.kind
