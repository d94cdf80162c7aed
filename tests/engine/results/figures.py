"""
What resuming and compacting take, in time and memory.

``python -m tests.engine.results.figures local|s3 ROWS`` prints them as JSON; each in a process of its
own, so that its memory is its own.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import tempfile
import time
from typing import Any

from airflow_provider_llmbatch.engine.results.folder import Folder, open_folder
from airflow_provider_llmbatch.engine.results.read import lines
from tests.engine.results.made import answers, finish, opened


def fill(folder: Folder, rows: int) -> float:
    """Leave the rows and the ledger of a try that was killed before its end; return the seconds it took."""
    began = time.monotonic()
    store = opened(folder, answers(rows))
    for index in range(rows - 1):
        finish(store, index)
    store.close()
    return time.monotonic() - began


def figures(folder: Folder, rows: int) -> dict[str, Any]:
    """Return seconds to write, to resume, to put together and to read so many rows, and the memory for it."""
    took = {"rows": rows, "write_s": fill(folder, rows)}
    before = _memory_mb()
    began = time.monotonic()
    store = opened(folder, answers(rows))
    assert not store.where.is_final(rows - 1)
    took["resume_s"] = time.monotonic() - began
    finish(store, rows - 1)
    store.close()
    began = time.monotonic()
    store.compact()
    took["compact_s"] = time.monotonic() - began
    began = time.monotonic()
    assert sum(1 for _ in lines(folder)) == rows
    took["read_s"] = time.monotonic() - began
    took["memory_mb"] = _memory_mb() - before
    return {name: round(value, 2) for name, value in took.items()}


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(kind: str, rows: str) -> None:
    """Print the figures of one kind of storage."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        if kind == "local":
            folder = open_folder(f"{place}/results")
        else:
            from tests.services.s3_server import running

            bucket = stack.enter_context(running())
            folder = bucket.folder("figures")
        print(json.dumps(figures(folder, int(rows))))


if __name__ == "__main__":
    main(*sys.argv[1:])
