"""
Join results, exports and reviews: delete what a folder holds, or take single items out of it.

A folder is taken as it is found, with whatever a task has left there: rows, the items that a query or a
function gave, exported tables, reports, a review queue. What is not known is told, and left alone.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, Literal

from airflow_provider_llmbatch.engine.results import erase, names
from airflow_provider_llmbatch.engine.results.erase import Wanted
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.review import erase as review
from airflow_provider_llmbatch.engine.sink.without import csv_without, parquet_without
from airflow_provider_llmbatch.errors import InputError, StoreError

What = Literal["rows", "file", "left"]

#: The source that a split or a mapped function writes.
ITEMS = "items.jsonl"
#: Files of numbers and settings, without a text or an id of an item.
_SILENT = (
    "task.json",
    "plan.json",
    "done.json",
    "round-",
    "alerted-",
    "applied-",
    "chunk-",
    "manifest-",
    "bill-",
)
#: Files that are made anew from the others.
_REPORTS = ("report.html", "report.md")
_QUEUE = ("tickets-", "texts-", "log-", "pack-")
#: How folders of fused records begin: their rows, embeddings and digests belong together.
_FUSION = "run="


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What became of a file."""

    #: where it is
    place: str
    #: rows were taken out of it, it was removed, or it was left as it is because nobody knows it
    what: What
    #: rows, or bytes of a removed file
    count: int


def delete_folder(folder: Folder, *, dry: bool = False) -> Iterator[Erased]:
    """
    Remove every file of a folder, the ledger last, and yield them.

    :param dry: remove nothing.
    :raises StoreError: when one cannot be removed.
    """
    sizes = folder.sizes()
    for name in sorted(sizes, key=lambda name: (name.startswith("ledger-"), name)):
        if not dry:
            folder.remove(name)
        yield Erased(place=f"{folder.uri}/{name}", what="file", count=sizes[name])


def find_items(folder: Folder, wanted: Wanted) -> set[str]:
    """
    Return the ids of the wanted items that a folder has rows of, or a source.

    :raises StoreError: for a file that cannot be read.
    """
    found = erase.ids_in(folder, wanted)
    if ITEMS in folder.names():
        with folder.open(ITEMS) as file:
            for number, line in enumerate(file):
                row = _object(f"{folder.uri}/{ITEMS}", line)
                if wanted.covers(id := _id(row, number), row.get("metadata")):
                    found.add(id)
    return found


def erase_items(folders: Sequence[Folder], ids: Collection[str], *, dry: bool = False) -> Iterator[Erased]:
    """
    Take items out of every file of some folders, and yield the files that change.

    Nobody may write to them meanwhile. Doing it again finds nothing more, and goes on where a kill ended it:
    rows and sources, by which items are found, come last.

    :param ids: of the items.
    :param dry: change nothing.
    :raises StoreError: for a file that cannot be read or written.
    :raises ConfigurationError: when a library is missing for one of them.
    """
    gone = frozenset(ids)
    if not gone:
        raise InputError("No item is named, so nothing is erased.")
    for folder in folders:
        yield from _copies(folder, gone, dry)
    for folder in filter(_is_ours, folders):
        yield from _rows(folder, gone, dry)
        if ITEMS in folder.names() and (count := _lines(folder, ITEMS, gone, dry)):
            yield Erased(place=f"{folder.uri}/{ITEMS}", what="rows", count=count)


def _is_ours(folder: Folder) -> bool:
    return not folder.uri.rpartition("/")[2].startswith(_FUSION)


def _copies(folder: Folder, ids: frozenset[str], dry: bool) -> Iterator[Erased]:
    ours = _is_ours(folder)
    for name, count in review.erase(folder, ids, dry=dry).items() if ours else ():
        yield Erased(place=f"{folder.uri}/{name}", what="rows", count=count)
    for name, size in folder.sizes().items():
        if ours:
            yield from _copy(folder, name, size, ids, dry)
        else:
            yield Erased(place=f"{folder.uri}/{name}", what="left", count=size)


def _rows(folder: Folder, ids: frozenset[str], dry: bool) -> Iterator[Erased]:
    for chunk, parts in _by_chunk(folder).items():
        counts = {part: erase.erase_rows(folder, part, ids, dry=dry) for part in parts}
        if any(counts.values()) and not dry:
            erase.recount(folder, chunk)
        for part, count in counts.items():
            if count:
                yield Erased(place=f"{folder.uri}/{part}", what="rows", count=count)


def _by_chunk(folder: Folder) -> dict[int, list[names.PartName]]:
    chunks: dict[int, list[names.PartName]] = {}
    for part in erase.parts_of(folder):
        chunks.setdefault(part.chunk, []).append(part)
    return chunks


def _copy(folder: Folder, name: str, size: int, ids: frozenset[str], dry: bool) -> Iterator[Erased]:
    """Take items out of a file that is neither rows nor a review's, by what its name says it is."""
    place = f"{folder.uri}/{name}"
    if names.parse(name) is not None or name == ITEMS or name.startswith((*_SILENT, *_QUEUE)):
        return
    if name in _REPORTS or (name.startswith(".") and name.endswith(".draft")):
        # A report quotes failed items, and a draft is what a kill has left of rows.
        if not dry:
            folder.remove(name)
        yield Erased(place=place, what="file", count=size)
        return
    change = _CHANGES.get(name.rpartition(".")[2].lower())
    if change is None:
        yield Erased(place=place, what="left", count=size)
    elif count := change(folder, name, ids, dry):
        yield Erased(place=place, what="rows", count=count)


def _lines(folder: Folder, name: str, ids: frozenset[str], dry: bool) -> int:
    """Leave lines of an export out; in a source, where places count, an empty item takes theirs."""

    def change(number: int, line: bytes) -> bytes | None:
        row = _object(f"{folder.uri}/{name}", line)
        if name == ITEMS:
            gone = _id(row, number) in ids and row != _nothing(number)
            return json.dumps(_nothing(number)).encode() + b"\n" if gone else line
        # Rows of ours, of Airflow's own batches, and scores of a rollout.
        return None if any(row.get(name) in ids for name in ("id", "custom_id", "unit")) else line

    return erase.rewrite(folder, name, change, dry=dry)


def _table(
    without: Callable[[BinaryIO, Collection[str], IO[bytes]], int],
) -> Callable[[Folder, str, frozenset[str], bool], int]:
    def change(folder: Folder, name: str, ids: frozenset[str], dry: bool) -> int:
        with tempfile.TemporaryFile() as draft:
            with folder.open(name) as file:
                count = without(file, ids, draft)
            if count and not dry:
                draft.seek(0)
                folder.put(name, erase.pieces(draft), replace=True)
        return count

    return change


_CHANGES: dict[str, Callable[[Folder, str, frozenset[str], bool], int]] = {
    "jsonl": _lines,
    "csv": _table(csv_without),
    "parquet": _table(parquet_without),
}


def _nothing(number: int) -> dict[str, Any]:
    return {"id": f"#{number}", "prompt": ""}


def _id(row: dict[str, Any], number: int) -> str:
    """Return the id of a source's row; one that names none is known by its place."""
    id = row.get("id")
    return f"#{number}" if id is None else str(id)


def _object(place: str, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise StoreError(
            f"{place} has a line that is no JSON, so nobody can tell whose it is; nothing was erased from "
            "it. Mend or remove the file, and erase again."
        ) from error
    return row if isinstance(row, dict) else {}
