"""Names that stay the same over tries, and fingerprints that change with what they stand for."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from airflow_provider_llmbatch.engine.items import Json, Message
from airflow_provider_llmbatch.errors import InputError

#: KiB that the table of ids may keep in memory; what is over lies on disk.
_CACHE_KIB = 2048


def canonical_json(value: Json) -> str:
    """
    Return the one spelling of a value: sorted keys, no spaces, ASCII.

    :raises ValueError: for NaN and infinity.
    :raises TypeError: for what JSON cannot hold.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def fingerprint(*parts: Json) -> str:
    """Return the SHA-256 of the parts in canonical JSON, as 64 hex digits."""
    return hashlib.sha256(canonical_json(parts).encode("ascii")).hexdigest()


def request_fingerprint(
    endpoint_or_account: str,
    model: str,
    messages: Sequence[Message],
    params: Mapping[str, Json],
    schema: Json = None,
) -> str:
    """Return what makes two requests the same question: one payment answers both."""
    return fingerprint("request", endpoint_or_account, model, messages, params, schema)


def stable_key(dag: str, run: str, task: str, map_index: int = -1) -> str:
    """Return 32 hex digits for a task instance, the same for all of its tries."""
    return fingerprint("task", dag, run, task, map_index)[:32]


def digest_rows(rows: Iterable[bytes]) -> str:
    """Return the SHA-256 of a chunk's rows, each followed by a newline, as 64 hex digits."""
    digest = hashlib.sha256()
    for raw in rows:
        digest.update(raw)
        digest.update(b"\n")
    return digest.hexdigest()


class UniqueIds:
    """
    Refuse an id that comes twice, and a group that is scattered, in flat memory.

    The names lie in a temporary database on disk.

    :param source: what the ids come from, for the message.
    :param directory: where the database may lie; the system's temporary directory when None.
    """

    def __init__(self, source: str, *, directory: str | None = None) -> None:
        self._source = source
        self._directory = tempfile.TemporaryDirectory(prefix="llmbatch-ids-", dir=directory)
        # autocommit without a journal: the file lives as long as this object and is never recovered
        self._database = sqlite3.connect(
            Path(self._directory.name) / "ids.sqlite", isolation_level=None, check_same_thread=False
        )
        self._database.executescript(
            f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-{_CACHE_KIB};"
            "CREATE TABLE ids (name TEXT PRIMARY KEY, row INTEGER NOT NULL) WITHOUT ROWID;"
            "CREATE TABLE groups (name TEXT PRIMARY KEY, row INTEGER NOT NULL) WITHOUT ROWID;"
            "BEGIN;"
        )

    def add(self, id: str, index: int) -> None:
        """
        Take an id in.

        :param index: position of its row in the source, from 0.
        :raises InputError: when an earlier row has it.
        """
        earlier = self._earlier("ids", id, index)
        if earlier is not None:
            raise InputError(
                f"{self._source}: items {earlier} and {index} (counted from 0) have the same id {id!r}. "
                "Give every row its own id, or leave the id out of all rows."
            )

    def start_group(self, group: str, index: int) -> None:
        """
        Take in that a group's rows begin.

        :param index: position of the first of them in the source, from 0.
        :raises InputError: when the group began before, with other rows in between.
        """
        earlier = self._earlier("groups", group, index)
        if earlier is not None:
            raise InputError(
                f"{self._source}: group {group!r} begins at item {earlier} (counted from 0) and again at "
                f"item {index}, with other rows in between. Sort the source by group."
            )

    def _earlier(self, table: Literal["ids", "groups"], name: str, index: int) -> int | None:
        """Return where the name came before, or take it in."""
        try:
            self._database.execute(f"INSERT INTO {table} VALUES (?, ?)", (name, index))
        except sqlite3.IntegrityError:
            (earlier,) = self._database.execute(f"SELECT row FROM {table} WHERE name = ?", (name,)).fetchone()
            return int(earlier)
        return None

    def close(self) -> None:
        """Delete the database."""
        self._database.close()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _plain(value: Any) -> Json:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    raise TypeError(f"a value of type {type(value).__name__} has no JSON form")
