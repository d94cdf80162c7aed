"""Results and stores for these tests, made as a dispatch makes them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from airflow_provider_llmbatch.engine.items import Cost, Outcome, PromptRef, Result, RunRef, Usage
from airflow_provider_llmbatch.engine.results import resume
from airflow_provider_llmbatch.engine.results.answers import Answers
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.store import OnExisting, ResultStore, open_store

PROMPT = PromptRef(name="sort", version="1", sha="0" * 64)
USAGE = Usage(prompt=100, cached=20, completion=30, reasoning=5)
COST = Cost(usd=Decimal("0.000123"))


def result(index: int, outcome: Outcome = Outcome.OK, **fields: Any) -> Result:
    """Return a row that one call has brought."""
    values: dict[str, Any] = {
        "id": f"item-{index}",
        "output": {"label": f"label {index}", "score": 0.5},
        "prompt": PROMPT,
        "attempts": 1,
        "usage": USAGE,
        "cost": COST,
        "served_model": "gpt-4o-mini-2024-07-18",
        "endpoint": "http://127.0.0.1/v1",
        "credential": "default",
        "request_id": f"chatcmpl-{index}",
        "queue_ms": 12.5,
        "call_ms": 431.2,
        "finish_reason": "stop",
        "started_at": 1_800_000_000.125,
        "run": RunRef(dag="insights", run="manual__1", task="dispatch", map_index=0, try_number=1),
    }
    return Result(index=index, outcome=outcome, **{**values, **fields})


def answers(stop: int = 10, **fields: Any) -> Answers:
    """Return what the results of chunk 0 answer."""
    values: dict[str, Any] = {
        "chunk": 0,
        "start": 0,
        "fingerprint": "f" * 64,
        "source": "items.jsonl",
        "prompt": PROMPT,
        "model": "gpt-4o-mini",
        "schema_digest": "none",
        "host": "",
    }
    return Answers(stop=stop, **{**values, **fields})


def opened(
    folder: Folder, what: Answers | None = None, fence: int | None = None, on_existing: OnExisting = "resume"
) -> ResultStore:
    """Open the results as the next try does."""
    what = what or answers()
    number = fence or resume.highest_fence(folder, what.chunk) + 1
    return open_store(folder, what, number, on_existing)


def send(store: ResultStore, index: int, attempt: int = 1) -> None:
    """Note that a call leaves."""
    store.sent(index, attempt)


def book(store: ResultStore, index: int, attempt: int = 1, **fields: Any) -> None:
    """Book a call that is over."""
    values: dict[str, Any] = {
        "credential": "default",
        "endpoint": "http://127.0.0.1/v1",
        "model": "gpt-4o-mini",
        "status": 200,
        "usage": USAGE,
        "cost": COST,
    }
    store.book(index=index, attempt=attempt, **{**values, **fields})


def finish(store: ResultStore, index: int, outcome: Outcome = Outcome.OK, **fields: Any) -> None:
    """Do what a dispatch does for an item whose first call is answered."""
    send(store, index)
    store.add(result(index, outcome, **fields))
    book(store, index)
