"""
The files of a queue, in the folder of its task.

::

    texts-<round>-<try>-<n>.jsonl   what was asked and answered, one line a ticket
    tickets-<round>-<try>.jsonl     the tickets
    round-<round>.json              opens the round, and names the try whose tickets count
    log-<round>-<number>.json       one entry: a decision, or the end of the round
    pack-<round>-<n>.jsonl          the entries of a hundred such files, so that they are read at once
    applied-<round>.json            what was decided has been done
    alerted-<round>.json            somebody was told
    done.json                       the review is over, and what came of it

All but ``done.json`` are created once and never changed. So the number of the next entry is what two
reviewers compete for, whatever processes serve them: one gets it, the other reads what was decided.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

from airflow_provider_llmbatch.engine.items import SCHEMA_VERSION
from airflow_provider_llmbatch.errors import InputError, StoreError

DONE_FILE = "done.json"


class Storage(Protocol):
    """What a queue needs of a folder."""

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


def texts_file(round: int, attempt: str, number: int) -> str:
    """Return the name of a file of texts."""
    return f"texts-{round:02d}-{attempt}-{number:04d}.jsonl"


def tickets_file(round: int, attempt: str) -> str:
    """Return the name of the file of tickets."""
    return f"tickets-{round:02d}-{attempt}.jsonl"


def round_file(round: int) -> str:
    """Return the name of the file that opens a round."""
    return f"round-{round:02d}.json"


def entry_file(round: int, number: int) -> str:
    """Return the name of the file of a log entry."""
    return f"log-{round:02d}-{number:06d}.json"


def pack_file(round: int, number: int) -> str:
    """Return the name of the file that holds many entries."""
    return f"pack-{round:02d}-{number:04d}.jsonl"


def applied_file(round: int) -> str:
    """Return the name of the file that says that a round's decisions are done."""
    return f"applied-{round:02d}.json"


def alerted_file(round: int) -> str:
    """Return the name of the file that says that somebody was told of a round."""
    return f"alerted-{round:02d}.json"


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
