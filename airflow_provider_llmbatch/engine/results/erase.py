"""
Take items out of the result files of a folder.

In place of an erased item's row stands one that says nothing of it but that it was there: counts still add
up, what it cost stays on the bill, and no later try sends it again. Files are replaced whole, so that a
reader, or a kill, meets the old one or the new one. Nobody may write to the folder meanwhile.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

from airflow_provider_llmbatch.engine.items import ItemError, Outcome, Result
from airflow_provider_llmbatch.engine.results import names, read, rows
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.errors import StoreError

#: The class of the error in a row whose item was erased.
ERASED = "erased"
#: Bytes that are copied at once.
_PIECE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which items shall be erased: by their ids, or by what stands in their metadata."""

    ids: frozenset[str] = frozenset()
    #: fields of the metadata and their values, as text; one that fits is enough
    subjects: frozenset[tuple[str, str]] = frozenset()

    def covers(self, id: str, metadata: Any) -> bool:
        """Whether an item is one of them."""
        if id in self.ids:
            return True
        if not self.subjects or not isinstance(metadata, dict):
            return False
        return any(key in metadata and _text(metadata[key]) == value for key, value in self.subjects)


def ids_in(folder: Folder, wanted: Wanted) -> set[str]:
    """
    Return the ids of the wanted items that have rows in a folder.

    :raises StoreError: for a line that is no row.
    """
    found = set()
    for part in parts_of(folder):
        with folder.open(str(part)) as file:
            for line in file:
                row = _row(folder, part, line) if line.endswith(b"\n") else None
                if row is not None and wanted.covers(row["id"], row["metadata"]):
                    found.add(row["id"])
    return found


def runs_in(folder: Folder) -> set[tuple[str, str]]:
    """
    Return DAG and run of what wrote the results of a folder.

    A chunk tells who began it, and the first row of each part who wrote that: with one path for many runs
    the chunk knows the latest only, and a run that has just begun has no row.
    """
    found = {run for name in folder.names() if (run := _begun_by(folder, name)) is not None}
    for part in parts_of(folder):
        with folder.open(str(part)) as file:
            line = file.readline()
        if line.endswith(b"\n"):
            run = _row(folder, part, line)["run"]
            found.add((run["dag"], run["run"]))
    return found


def _begun_by(folder: Folder, name: str) -> tuple[str, str] | None:
    if names.chunk_of(name) is None:
        return None
    with folder.open(name) as file:
        occasion = json.loads(file.read()).get("occasion") or ""
    # DAG, run, task, map index, tries: of these only a run's id may have a slash in it.
    run, *rest = occasion.rsplit("/", 3)
    dag_id, slash, run_id = run.partition("/")
    return (dag_id, run_id) if slash and len(rest) == 3 else None


def parts_of(folder: Folder) -> list[PartName]:
    """Return the parts of all chunks."""
    found = map(names.parse, folder.names())
    return [name for name in found if name is not None and name.kind == "part"]


def erase_rows(folder: Folder, part: PartName, ids: frozenset[str], *, dry: bool) -> int:
    """
    Put rows that say nothing in place of those of some items, and return how many.

    A last line without its end, which nobody reads, goes as well.

    :param dry: only count.
    :raises StoreError: for a line that is no row, or when the part cannot be written.
    """

    def change(_: int, line: bytes) -> bytes | None:
        if not line.endswith(b"\n"):
            return None
        row = _row(folder, part, line)
        if row["id"] not in ids or (row["error"] or {}).get("class") == ERASED:
            return line
        return _erased(rows.from_row(row), len(line))

    return rewrite(folder, str(part), change, dry=dry)


def rewrite(folder: Folder, name: str, change: Callable[[int, bytes], bytes | None], *, dry: bool) -> int:
    """
    Change the lines of a file, and return how many were changed or left out.

    :param change: gets the number of a line, from 0, and the line, and returns what takes its place; None
        leaves it out.
    :param dry: only count.
    :raises StoreError: when it cannot be written.
    """
    changed = 0
    # What is not on a disk of ours cannot be read while it is replaced.
    with tempfile.TemporaryFile() as draft:
        with folder.open(name) as file:
            for number, line in enumerate(file):
                new = change(number, line)
                changed += new != line
                draft.write(new or b"")
        if changed and not dry:
            draft.seek(0)
            folder.put(name, pieces(draft), replace=True)
    return changed


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Yield what is left of a file."""
    while piece := file.read(_PIECE):
        yield piece


def recount(folder: Folder, chunk: int) -> None:
    """Let the stored manifest of a chunk count its rows as they are now."""
    name = names.manifest_file(chunk)
    try:
        with folder.open(name) as file:
            manifest = json.loads(file.read())
        counts = read.where_of(folder, chunk).counts()
    except FileNotFoundError:
        return
    manifest["counts"] = {outcome.value: n for outcome, n in counts.items()}
    folder.put(name, iter([json.dumps(manifest, indent=1).encode()]), replace=True)


def _erased(result: Result, length: int) -> bytes:
    """Return the row that takes the place of another, as long as that one where it fits: offsets stay."""
    line = rows.encode(
        replace(
            result,
            id=f"#{result.index}",
            outcome=Outcome.SKIPPED,
            output=None,
            raw_output=None,
            salvage=None,
            error=ItemError(kind=ERASED, message="The item was erased."),
            request_id=None,
            metadata=None,
        )
    )
    return line.rstrip(b"\n").ljust(length - 1) + b"\n"


def _row(folder: Folder, part: PartName, line: bytes) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(line)
        row["id"], row["metadata"], row["error"], row["run"]["dag"], row["run"]["run"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{folder.uri}/{part} has a line that is no result row, so nobody can tell whose it is; nothing "
            "was erased from it. Restore the file, or delete the whole run."
        ) from error
    return row


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
