"""The work that is measured: a source of items, and the job that dispatches them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.connection import parse
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.observe.events import Fanout
from airflow_provider_llmbatch.engine.observe.log import LogObserver
from airflow_provider_llmbatch.engine.prompt import inline_prompt
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.source import open_source
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.engine.validate.schema import output_schema

MODEL = "gpt-4o-mini"
SYSTEM = (
    "You sort messages of customers by what they want. Read the whole message, decide for one label, and say "
    "how sure you are as a number from 0 to 1. Answer with JSON only, nothing before it and nothing after it."
)
USER = "The message of the customer follows.\n\n{{ text }}"
SCHEMA = {
    "title": "Sorted",
    "type": "object",
    "properties": {"label": {"type": "string"}, "score": {"type": "number"}},
    "required": ["label", "score"],
    "additionalProperties": False,
}
#: Limits that are accounted for and never reached.
WIDE = {"requests_per_minute": 100_000_000, "tokens_per_minute": 50_000_000_000}

_WORDS = (
    "order parcel invoice refund delivery window number street morning address colour size account password "
    "payment voucher return carrier label promise weekend support manager contract renewal meter reading"
).split()


def text(index: int, words: int) -> str:
    """Return a text of so many words, a different one for each index."""
    size = len(_WORDS)
    chosen = (_WORDS[(index * 7 + n * (1 + index % 5) + n * n) % size] for n in range(words))
    return f"Message {index}: {' '.join(chosen)}."


def write_items(path: Path, count: int, words: int = 40) -> Path:
    """Write a source of ``count`` items; with 40 words each makes a prompt of about 120 tokens."""
    with open(path, "wb") as file:
        for index in range(count):
            row = {"id": f"m{index}", "vars": {"text": text(index, words)}}
            file.write(json.dumps(row).encode() + b"\n")
    return path


def job(source: Path, url: str, results: Path | str, *, extra: dict[str, Any], **further: Any) -> Job:
    """Return a job over ``source``; ``extra`` are fields of the connection."""
    settings = {
        "output_type": SCHEMA,
        "params": {"temperature": 0, "max_tokens": 64},
        **further,
    }
    return Job(
        source=open_source(source),
        prompt=inline_prompt(SYSTEM, USER),
        connection=parse("bench", host=url, password="sk-benchmark-0123456789", extra=extra),
        model=MODEL,
        schema=output_schema(settings.pop("output_type")),
        result_path=str(results),
        **settings,
    )


async def dispatched(work: Job, state_file: Path | str) -> Manifest:
    """Dispatch a job the way the operator does, and return its manifest."""
    log = logging.getLogger("bench")
    chunk = whole(work)
    state = SqliteState(state_file)
    try:
        observe = Fanout([LogObserver(log, total=chunk.items)])
        return await run(work, chunk, state=state, observe=observe, note=log.info)
    finally:
        await state.close()


def bodies(count: int, words: int = 40) -> Iterator[bytes]:
    """Yield ready request bodies that say the same, for peers that only send."""
    for index in range(count):
        messages = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": USER.replace("{{ text }}", text(index, words))},
        ]
        yield json.dumps({"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 64}).encode()
