"""Read results back: every item's row, in index order, whatever tries and chunks wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from airflow_provider_llmbatch.engine.items import Outcome, Result
from airflow_provider_llmbatch.engine.results import names, resume, rows
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.store import read_answers
from airflow_provider_llmbatch.errors import InputError


def lines(folder: Folder, keep: Iterable[Outcome] | None = None) -> Iterator[bytes]:
    """
    Yield the rows of all chunks, as lines of JSON, in index order.

    :param keep: only items that ended so; all when None.
    :raises InputError: when there are no results.
    :raises StoreError: when a file cannot be read.
    """
    chunks = sorted(chunk for chunk in map(names.chunk_of, folder.names()) if chunk is not None)
    if not chunks:
        raise InputError(f"There are no results in {folder.uri}.")
    kept = None if keep is None else frozenset(keep)
    for chunk in chunks:
        answers = read_answers(folder, chunk) or {}
        where = resume.rows_of(folder, chunk, answers["start"], answers["stop"])
        yield from where.lines(folder, kept)


def results(folder: Folder, keep: Iterable[Outcome] | None = None) -> Iterator[Result]:
    """Yield the same as values."""
    return (rows.from_row(json.loads(line)) for line in lines(folder, keep))
