"""Join claims, fingerprints and results: what another run has paid for answers here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from airflow_provider_llmbatch.engine.dispatch.reuse import Recall, Reuse, When
from airflow_provider_llmbatch.engine.identity import request_fingerprint
from airflow_provider_llmbatch.engine.items import Chunk, Request, Result
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.results import read, rows
from airflow_provider_llmbatch.engine.results.folder import Folder, open_folder
from airflow_provider_llmbatch.engine.results.where import Where
from airflow_provider_llmbatch.engine.state.claims import Claims, Pointer
from airflow_provider_llmbatch.errors import LLMBatchError


def reuse_of(
    job: Job, chunk: Chunk, folder: Folder, claims: Claims, fence: int, when: When = "first"
) -> Reuse:
    """
    Return what finds answers for a run.

    :param when: whether answers are looked for before a request is sent, or only once it is throttled.

    Two requests are one question when service, model, messages, parameters and schema are the same.
    """

    def question(request: Request) -> str:
        return request_fingerprint(
            job.connection.base_url, request.model, request.messages, request.params, job.schema.digest
        )

    how: dict[str, Any] = {
        "holder": f"{job.owner}/{chunk.number}",
        "fence": fence,
        "here": (folder.uri, chunk.number),
        "question": question,
        "read": _reader(job),
        "run": job.run,
        "wall": job.clocks.wall,
    }
    if when == "first":
        return Reuse(claims, **how)
    always = job.connection.cache_on_throttle == "always"
    return Recall(claims, may_repeat=lambda request: always or not wants_variety(request), **how)


def wants_variety(request: Request) -> bool:
    """Whether a request asks for another answer each time: a temperature above 0, and no seed."""
    temperature = request.params.get("temperature")
    return isinstance(temperature, int | float) and temperature > 0 and request.params.get("seed") is None


def _reader(job: Job) -> Callable[[Pointer], Result | None]:
    """Return a reader of single rows that looks through a chunk once, and again when it has grown."""
    seen: dict[tuple[str, int], tuple[Folder, Where]] = {}

    def look(pointer: Pointer) -> tuple[Folder, Where]:
        folder = open_folder(pointer.path, filesystem=job.filesystem, read_only=True)
        seen[pointer.path, pointer.chunk] = found = (folder, read.where_of(folder, pointer.chunk))
        return found

    def row(pointer: Pointer) -> Result | None:
        for known in (seen.get((pointer.path, pointer.chunk)), None):
            try:
                folder, where = known or look(pointer)
                with where.shelf(folder) as shelf:
                    return rows.from_row(json.loads(where.line(shelf, pointer.index)))
            except (LLMBatchError, OSError, LookupError, ValueError):
                # Grown, put together or gone since it was looked through.
                continue
        return None

    return row
