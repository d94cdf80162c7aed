"""
An append-only log on storage that any number of processes may write, and the files it is made of.

An entry is a file that is created exclusively under the next number. Who comes second finds the number
taken, reads what the first one wrote, and looks again whether there is still something to say.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from airflow_provider_llmbatch.engine.items import SCHEMA_VERSION
from airflow_provider_llmbatch.errors import InputError, StoreError

#: Entries that are packed into one file.
PACK = 100

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Who decides; the task itself has neither id nor name."""

    id: str = ""
    name: str = ""


class Storage(Protocol):
    """What a log needs of a folder."""

    @property
    def uri(self) -> str:
        """What a person finds it by."""

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""

    def open(self, name: str) -> BinaryIO:
        """
        Open a file for reading.

        :raises FileNotFoundError: when it is not there.
        """

    def put(self, name: str, chunks: Iterator[bytes], *, replace: bool = False) -> None:
        """
        Write a whole file in one step.

        :raises FileExistsError: when the name is taken and ``replace`` is False.
        """

    def remove(self, name: str) -> None:
        """Remove a file; not being there is fine."""


class Journal:
    """
    A log in a folder.

    :param storage: the folder.
    :param entry: name of the file of an entry, by its number from 1.
    :param pack: name of the file that holds many entries, by its number from 0.
    """

    def __init__(self, storage: Storage, entry: Callable[[int], str], pack: Callable[[int], str]) -> None:
        self._storage = storage
        self._file_of = entry
        self._pack_of = pack
        #: entries that were read
        self.read = 0

    def news(self) -> Iterator[Entry]:
        """
        Yield the entries that were not read yet.

        :raises StoreError: when one cannot be read.
        """
        while True:
            entries = self._pack() if self.read % PACK == 0 else None
            if entries is None:
                name = self._file_of(self.read + 1)
                content = read(self._storage, name)
                if content is None:
                    return
                entries = [self._entry(name, content)]
            for entry in entries:
                self.read += 1
                yield entry

    def append(self, entry: Entry) -> bool:
        """
        Add an entry after those that were read; False when somebody else was faster.

        When this returns True, the entry is on storage, and was read.

        :raises StoreError: when it cannot be written.
        """
        try:
            put_json(self._storage, self._file_of(self.read + 1), entry)
        except FileExistsError:
            return False
        self.read += 1
        if self.read % PACK == 0:
            self._put_pack()
        return True

    def _pack(self) -> list[Entry] | None:
        name = self._pack_of(self.read // PACK)
        content = read(self._storage, name)
        if content is None:
            return None
        return [self._entry(name, line) for line in content.splitlines()]

    def _put_pack(self) -> None:
        """Put the last entries into one file; without it they are read one by one."""
        first = self.read - PACK + 1
        lines = [read(self._storage, self._file_of(n)) for n in range(first, self.read + 1)]
        # The entries themselves are stored; whoever packs them next time will do.
        with contextlib.suppress(FileExistsError, StoreError):
            content = b"".join(line + b"\n" for line in lines if line is not None)
            self._storage.put(self._pack_of(first // PACK), iter([content]))

    def _entry(self, name: str, content: bytes) -> Entry:
        try:
            entry: Entry = json.loads(content)
            entry["type"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self._storage.uri}/{name} cannot be read: {error!r}. Restore it: it holds decisions."
            ) from error
        return entry


def read(storage: Storage, name: str) -> bytes | None:
    """Return the content of a file; None when it is not there."""
    try:
        with storage.open(name) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_json(storage: Storage, name: str) -> dict[str, Any] | None:
    """
    Return the object in a file; None when it is not there.

    :raises InputError: when another version of the package wrote it.
    :raises StoreError: when it cannot be read.
    """
    content = read(storage, name)
    if content is None:
        return None
    try:
        data: dict[str, Any] = json.loads(content)
        version = data["schema_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{storage.uri}/{name} cannot be read: {error!r}. Restore it.") from error
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{storage.uri}/{name} has schema_version {version!r}, this version of the package reads "
            f"{SCHEMA_VERSION}. Use the version that wrote it."
        )
    return data


def put_json(storage: Storage, name: str, data: dict[str, Any], *, replace: bool = False) -> None:
    """
    Write an object.

    :raises FileExistsError: when the name is taken and ``replace`` is False.
    """
    content = json.dumps({"schema_version": SCHEMA_VERSION, **data}, allow_nan=False).encode()
    storage.put(name, iter([content]), replace=replace)
