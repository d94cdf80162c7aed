"""
What it takes to resume from results in an object store, to put them together, and to read them back.

``python -m tests.engine.results.figures ROWS`` prints the seconds as JSON. The parts are those that a try
leaves that was killed right before its end: one for every 200 rows, and as many of the ledger.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.results import ledger
from airflow_provider_llmbatch.engine.results.answers import put_answers
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.engine.results.read import lines
from airflow_provider_llmbatch.engine.results.rows import encode
from airflow_provider_llmbatch.engine.results.shipping import PART_ROWS
from tests.engine.results.made import COST, USAGE, answers, finish, opened, result
from tests.services.s3_server import running


def leave(folder: Folder, count: int) -> None:
    """Leave the parts of ``count`` rows."""
    put_answers(folder, answers(count + 1), since=0)

    def part(n: int) -> None:
        indexes = range(n * PART_ROWS, min(count, (n + 1) * PART_ROWS))
        folder.put(str(PartName(0, 1, n, "ledger")), iter([b"".join(map(_booked, indexes))]))
        folder.put(str(PartName(0, 1, n)), iter([b"".join(encode(result(index)) for index in indexes)]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(part, range(-(-count // PART_ROWS))))


def _booked(index: int) -> bytes:
    settled = ledger.Settled(
        index=index,
        attempt=1,
        credential="default",
        endpoint="http://127.0.0.1/v1",
        model="gpt-4o-mini",
        status=200,
        usage=USAGE,
        cost=COST,
    )
    return ledger.sent_line(index, 1) + ledger.settled_line(settled)


def figures(folder: Folder, count: int) -> dict[str, Any]:
    """Return what it takes, in seconds, and the memory that grew meanwhile."""
    leave(folder, count)
    before, began = _memory_mb(), time.monotonic()
    store = opened(folder, answers(count + 1))
    took = {"rows": count, "resume_s": time.monotonic() - began}
    assert store.totals.settled == count
    finish(store, count)
    store.close()
    began = time.monotonic()
    store.compact()
    took["compact_s"] = time.monotonic() - began
    began = time.monotonic()
    assert sum(1 for _ in lines(folder)) == count + 1
    took["read_s"] = time.monotonic() - began
    took["memory_mb"] = _memory_mb() - before
    return {name: round(value, 2) for name, value in took.items()}


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(count: str) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as place, running() as bucket:
        print(json.dumps(figures(bucket.folder("figures", spool_root=Path(place)), int(count))))


if __name__ == "__main__":
    main(*sys.argv[1:])
