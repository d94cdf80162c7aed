"""
A try that finds everything done: how long until it knows, for a million items on a disk, fewer on S3.

``python -m tests.benchmarks.resume --items N --folder PATH [--s3]`` makes the results of an earlier try, line
by line as the engine writes them, and resumes from there; the time to make them does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.identity import digest_rows
from airflow_provider_llmbatch.engine.items import Chunk, Cost, Outcome, Result, Usage
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.observe.events import Fanout
from airflow_provider_llmbatch.engine.results import ledger, rows
from airflow_provider_llmbatch.engine.results.answers import Answers, put_answers
from airflow_provider_llmbatch.engine.results.folder import Folder, open_folder
from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.engine.run import run
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from tests.benchmarks import work
from tests.benchmarks.machine import peak_mb
from tests.benchmarks.processes import measured

ITEMS, ITEMS_ON_S3 = 1_000_000, 100_000
WORDS = 8
#: Lines that are written at once.
PIECE = 10_000


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Return the seconds of a try that has nothing to do, from its first look to its manifest."""
    items, items_on_s3 = (20_000, 5_000) if quick else (ITEMS, ITEMS_ON_S3)
    local, s3 = _resumed(items), _resumed(items_on_s3, "--s3")
    return {
        "resume_s": round(local["s"], 2),
        "resume_items": items,
        "resume_peak_mb": round(local["peak_mb"], 1),
        "resume_s3_s": round(s3["s"], 2),
        "resume_s3_items": items_on_s3,
    }


def _resumed(items: int, *options: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="llmbatch-bench-") as name:
        work.write_items(Path(name) / "items.jsonl", items, words=WORDS)
        return measured("resume", "--items", items, "--folder", name, *options)


def leave_results(folder: Folder, job: Job, chunk: Chunk) -> None:
    """Leave what a try has written that was killed after its last item, before it put its parts together."""
    answers = Answers(
        chunk=chunk.number,
        start=chunk.start,
        stop=chunk.stop,
        fingerprint=job.fingerprint(chunk.sha),
        source=job.source.uri,
        prompt=job.prompt.ref,
        model=job.model,
        schema_digest=job.schema.digest,
        host=job.host,
        occasion=job.occasion,
    )
    put_answers(folder, answers, since=0)
    folder.put(str(PartName(chunk.number, 1, 0)), _joined(_row_lines(job, chunk.items)))
    folder.put(str(PartName(chunk.number, 1, 0, "ledger")), _joined(_ledger_lines(job, chunk.items)))


def _row_lines(job: Job, count: int) -> Iterator[bytes]:
    for index in range(count):
        yield rows.encode(
            Result(
                index=index,
                id=f"m{index}",
                outcome=Outcome.OK,
                output={"label": "ok", "score": 0.5},
                served_model=job.model,
                endpoint=job.connection.base_url,
                credential=job.connection.credentials[0].id,
                prompt=job.prompt.ref,
                attempts=1,
                usage=Usage(prompt=90, completion=8),
                finish_reason="stop",
            )
        )


def _ledger_lines(job: Job, count: int) -> Iterator[bytes]:
    for index in range(count):
        yield ledger.sent_line(index, 1)
        settled = ledger.Settled(
            index=index,
            attempt=1,
            credential=job.connection.credentials[0].id,
            endpoint=job.connection.base_url,
            model=job.model,
            status=200,
            usage=Usage(prompt=90, completion=8),
            cost=Cost(),
        )
        yield ledger.settled_line(settled)


def _joined(lines: Iterator[bytes]) -> Iterator[bytes]:
    while piece := b"".join(itertools.islice(lines, PIECE)):
        yield piece


async def _finish(job: Job, chunk: Chunk, state_file: Path) -> int:
    state = SqliteState(state_file)
    try:
        manifest = await run(job, chunk, state=state, observe=Fanout(()), note=print)
        return manifest.resumed
    finally:
        await state.close()


def main() -> None:
    """Leave results, resume, and print how long that took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--s3", action="store_true")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        place: dict[str, Any] = {}
        path = str(given.folder / "results")
        if given.s3:
            from tests.services import s3_server

            bucket = stack.enter_context(s3_server.running())
            path, place = f"s3://{bucket.name}/results", {"filesystem": bucket.files()}
        source = given.folder / "items.jsonl"
        job = work.job(source, "http://nobody.invalid/v1", path, extra=work.WIDE, **place)
        sha = digest_rows(line.rstrip(b"\n") for line in source.open("rb"))
        chunk = Chunk(number=0, start=0, stop=given.items, offset=0, sha=sha)
        leave_results(open_folder(path, **place), job, chunk)
        before, began = peak_mb(), time.perf_counter()
        resumed = asyncio.run(_finish(job, chunk, given.folder / "state.db"))
        seconds = time.perf_counter() - began
    if resumed != given.items:
        raise SystemExit(f"only {resumed} items were known as done")
    print(json.dumps({"s": seconds, "peak_mb": peak_mb(), "grown_mb": peak_mb() - before}))


if __name__ == "__main__":
    main()
