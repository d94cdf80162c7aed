"""
The manifests of a result folder: stored when a chunk ends, made of its rows as long as it has not.

A new try takes the stored one away first, so that no manifest stands beside rows it does not speak of.
"""

from __future__ import annotations

import json

from airflow_provider_llmbatch.engine.results import names, resume
from airflow_provider_llmbatch.engine.results.answers import read_answers
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.errors import StoreError


def store(folder: Folder, manifest: Manifest) -> None:
    """Keep the manifest of a chunk that has ended."""
    content = json.dumps(manifest.to_json(), indent=1).encode()
    folder.put(names.manifest_file(manifest.chunk), iter([content]), replace=True)


def forget(folder: Folder, chunk: int) -> None:
    """Take the manifest of an earlier try away."""
    folder.remove(names.manifest_file(chunk))


def manifests(folder: Folder, *, as_of: str = "", now: float = 0.0) -> list[Manifest]:
    """
    Return a manifest of every chunk that has begun.

    :param as_of: what the manifests of chunks that have not ended give as their reason.
    :param now: Unix seconds; how long such chunks have run is counted to here.
    :raises StoreError: when something that is there cannot be read.
    """
    chunks = sorted(chunk for chunk in map(names.chunk_of, folder.names()) if chunk is not None)
    return [stored(folder, chunk) or _so_far(folder, chunk, as_of, now) for chunk in chunks]


def stored(folder: Folder, chunk: int) -> Manifest | None:
    """
    Return the manifest of a chunk that has ended; None of one that has not.

    :raises StoreError: when it cannot be read.
    """
    try:
        with folder.open(names.manifest_file(chunk)) as file:
            content = file.read()
    except FileNotFoundError:
        return None
    try:
        return Manifest.from_json(json.loads(content))
    except ValueError as error:
        raise StoreError(f"{folder.uri}/{names.manifest_file(chunk)} cannot be read: {error}") from error


def _so_far(folder: Folder, chunk: int, as_of: str, now: float) -> Manifest:
    """Return what a chunk that has not ended has stored; an item without a row counts as unsent."""
    answers = read_answers(folder, chunk) or {}
    found = resume.steadily(
        folder, lambda: resume.survey(folder, chunk, answers["start"], answers["stop"], answers["since"])
    )
    first = next(results(folder, chunks=[chunk]), None)
    newest = resume.highest_fence(folder, chunk)
    # Open calls of the newest try are in flight; only those of earlier tries were cut off.
    cut_off = sum(fence < newest for fence, _, _ in found.totals.open)
    return Manifest(
        result_path=folder.uri,
        state="running",
        items=answers["stop"] - answers["start"],
        counts=found.where.counts(),
        usage=found.totals.usage,
        cost=found.totals.cost,
        possible_double_paid=found.totals.maybe_paid + cut_off,
        model=answers["model"],
        schema_digest=answers["schema_digest"],
        fingerprint=answers["fingerprint"],
        chunk=chunk,
        started_at=first.started_at if first else 0.0,
        ended_at=now if first else 0.0,
        reason=as_of,
    )
