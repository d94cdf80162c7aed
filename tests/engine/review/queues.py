"""Queues for tests: opened on a real folder, without a dispatch behind them."""

from __future__ import annotations

from typing import Any

from airflow_provider_llmbatch.engine.items import ItemError, Outcome, PromptRef, Result
from airflow_provider_llmbatch.engine.results import rows
from airflow_provider_llmbatch.engine.results.folder import Folder, open_folder
from airflow_provider_llmbatch.engine.review.decision import Person
from airflow_provider_llmbatch.engine.review.opening import Texts, publish
from airflow_provider_llmbatch.engine.review.queue import Queue
from airflow_provider_llmbatch.engine.review.terms import Terms
from airflow_provider_llmbatch.engine.review.ticket import ticket_of

ANN, BEN = Person(id="1", name="ann"), Person(id="2", name="ben")
NOW = 1_800_000_000.0
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}


def failed(index: int, outcome: Outcome = Outcome.INVALID_OUTPUT, **fields: Any) -> Result:
    """Return the row of an item that failed."""
    usual = {
        "id": f"item-{index:05d}",
        "error": ItemError(kind="schema", message="The reply does not satisfy the schema."),
        "raw_output": '{"word": 3}',
        "served_model": "m-1",
        "prompt": PromptRef(name="p", version="1", sha="ab" * 32),
        "attempts": 1 + index % 3,
    }
    return Result(**{**usual, "index": index, "outcome": outcome, **fields})


def opened(path: Any, results: list[Result], *, acceptable: bool = False, **terms: Any) -> Queue:
    """Open a round with a ticket for each result, and return its queue."""
    folder: Folder = open_folder(str(path))
    queue = Queue(folder)
    queue.refresh()
    number = len(queue.rounds) + 1
    texts = Texts(folder, number, "first")
    tickets = [
        ticket_of(
            result,
            folder=0,
            chunk=0,
            reason="failed",
            group=None,
            acceptable=acceptable,
            place=texts.add(
                {"id": result.id, "vars": {"text": f"text of {result.index}"}},
                [{"role": "user", "content": f"text of {result.index}"}],
                rows.to_row(result),
            ),
        )
        for result in results
    ]
    texts.flush()
    publish(
        folder,
        number,
        "first",
        tickets,
        folders=["somewhere"],
        level=number,
        terms=Terms(**{"schema": SCHEMA, "models": ("m-2",), "prompts": ("p@1", "p@2"), **terms}),
        occasion="once",
        at=NOW,
    )
    queue.refresh()
    return queue
