"""
Starts tries of a batch, each in a process of its own that is ready at once.

Reads a JSON object per line (``source``, ``url``, ``results``, ``state``, and for S3 ``endpoint`` and
``spool``), forks, and lets the child dispatch. Prints the child's number when it begins and its exit status
when it ends.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from typing import Any

from airflow_provider_llmbatch.engine.connection import parse
from airflow_provider_llmbatch.engine.items import Usage
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.observe.events import Fanout
from airflow_provider_llmbatch.engine.prompt import inline_prompt
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.source import open_source
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.tokens.count import TokenCounter
from airflow_provider_llmbatch.engine.tokens.price import PriceTable
from airflow_provider_llmbatch.engine.validate.schema import output_schema

CONCURRENCY = 20
MODEL = "gpt-4o-mini"


def job(told: dict[str, str]) -> Job:
    """Return the job of a try."""
    limits = {"requests_per_minute": 10**8, "tokens_per_minute": 10**11, "max_in_flight": CONCURRENCY}
    return Job(
        source=open_source(told["source"]),
        prompt=inline_prompt("Answer briefly.", "{{ text }}"),
        connection=parse("kill", host=told["url"], password="sk-kill-0123456789", extra=limits),
        model=MODEL,
        schema=output_schema(None),
        result_path=told["results"],
        filesystem=filesystem(told),
    )


def filesystem(told: dict[str, str]) -> Any:
    """Return the file system of the results; None for a disk."""
    if "endpoint" not in told:
        return None
    from tests.services.s3_server import Bucket

    return Bucket(told["endpoint"], "").files()


async def dispatch(told: dict[str, str]) -> None:
    """Run the batch, or what is left of it."""
    state = SqliteState(told["state"])
    try:
        work = job(told)
        await run(work, whole(work), state=state, observe=Fanout([]), note=lambda _: None)
    finally:
        await state.close()


def child(told: dict[str, str]) -> int:
    """Be one try; return its exit status."""
    tempfile.tempdir = told.get("spool")
    try:
        asyncio.run(dispatch(told))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Start a try for each line of the input."""
    # What every process reads once is read before the first one starts.
    importlib.import_module("s3fs")
    TokenCounter.for_model(MODEL).count("")
    PriceTable(now=time.time).cost(MODEL, Usage())
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            os._exit(child(json.loads(line)))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
