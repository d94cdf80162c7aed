"""Read results back: every item's row, in index order, whatever tries and chunks wrote them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from airflow_provider_llmbatch.engine.items import Outcome, Result
from airflow_provider_llmbatch.engine.results import names, resume, rows
from airflow_provider_llmbatch.engine.results.answers import read_answers
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.where import Where
from airflow_provider_llmbatch.errors import InputError, StoreError


def lines(
    folder: Folder, keep: Iterable[Outcome] | None = None, *, chunks: Iterable[int] | None = None
) -> Iterator[bytes]:
    """
    Yield the rows of all chunks, as lines of JSON, in index order.

    :param keep: only items that ended so; all when None.
    :param chunks: only these chunks.
    :raises InputError: when there are no results.
    :raises StoreError: when a file cannot be read.
    """
    found = (chunk for chunk in map(names.chunk_of, folder.names()) if chunk is not None)
    chunks = sorted(found if chunks is None else set(found).intersection(chunks))
    if not chunks:
        raise InputError(f"There are no results in {folder.uri}.")
    kept = None if keep is None else frozenset(keep)
    for chunk in chunks:
        yield from _of_chunk(folder, chunk, kept)


def results(
    folder: Folder, keep: Iterable[Outcome] | None = None, *, chunks: Iterable[int] | None = None
) -> Iterator[Result]:
    """Yield the same as values."""
    return (rows.from_row(json.loads(line)) for line in lines(folder, keep, chunks=chunks))


def _of_chunk(folder: Folder, chunk: int, kept: frozenset[Outcome] | None) -> Iterator[bytes]:
    next_index: int | None = None
    for _ in range(resume.LOOKS):
        try:
            where = where_of(folder, chunk)
            for index, line in where.lines(folder, kept, start=next_index):
                yield line
                next_index = index + 1
        except FileNotFoundError:
            # The parts were put together between our look and our reading: the same rows lie elsewhere.
            continue
        return
    raise StoreError(f"The results in {folder.uri} change faster than they can be read; try again.")


def where_of(folder: Folder, chunk: int) -> Where:
    """
    Return where the rows of a chunk lie.

    :raises FileNotFoundError: when there is no such chunk, or its parts were put together meanwhile.
    """
    answers = read_answers(folder, chunk)
    if answers is None:
        raise FileNotFoundError(names.chunk_file(chunk))
    return resume.rows_of(folder, chunk, answers["start"], answers["stop"], answers["since"])
