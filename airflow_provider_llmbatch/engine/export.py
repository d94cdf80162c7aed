"""Take results out: into one file, or into a table."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from airflow_provider_llmbatch.engine.items import Outcome, Result
from airflow_provider_llmbatch.engine.results import foreign, read, rows
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.sink.columns import Column
from airflow_provider_llmbatch.engine.sink.csv import to_csv
from airflow_provider_llmbatch.engine.sink.parquet import to_parquet

Format = Literal["parquet", "csv", "jsonl", "common_ai"]


def _jsonl(results: Iterable[Result], columns: Sequence[Column]) -> Iterator[bytes]:
    del columns  # whole rows, as they are kept
    return map(rows.encode, results)


def _common_ai(results: Iterable[Result], columns: Sequence[Column]) -> Iterator[bytes]:
    del columns
    return (rows.dump_line(foreign.to_common_ai(result)) for result in results)


_WRITERS: Mapping[Format, Callable[[Iterable[Result], Sequence[Column]], Iterator[bytes]]] = {
    "parquet": to_parquet,
    "csv": to_csv,
    "jsonl": _jsonl,
    "common_ai": _common_ai,
}


def results_of(
    places: Iterable[tuple[Folder, Iterable[int]]], keep: Iterable[Outcome] | None = None
) -> Iterator[Result]:
    """
    Yield the results of several folders, one folder after the other, each in index order.

    :param places: folders, and which chunks of each.
    :param keep: only items that ended so; all when None.
    """
    kept = None if keep is None else frozenset(keep)
    return itertools.chain.from_iterable(
        read.results(folder, kept, chunks=chunks) for folder, chunks in places
    )


def to_file(
    results: Iterable[Result], folder: Folder, name: str, *, form: Format, columns: Sequence[Column]
) -> int:
    """
    Write results into a file, in one step for its readers, and return how many there are.

    :param folder: where the file goes; one of that name is replaced.
    :param columns: what a table's rows hold.
    :raises ConfigurationError: when a library is missing.
    :raises StoreError: when the file cannot be written.
    """
    counted = _Counted(results)
    folder.put(name, _WRITERS[form](counted, columns), replace=True)
    return counted.count


class _Counted:
    def __init__(self, results: Iterable[Result]) -> None:
        self._results = results
        self.count = 0

    def __iter__(self) -> Iterator[Result]:
        for result in self._results:
            self.count += 1
            yield result
