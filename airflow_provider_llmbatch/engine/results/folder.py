"""The place of a run's results: a handful of operations that a local disk and an object store share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Protocol

from airflow_provider_llmbatch.engine.locations import is_local
from airflow_provider_llmbatch.engine.results.local import LocalFolder
from airflow_provider_llmbatch.engine.results.objects import ObjectFolder, locate


class Appender(Protocol):
    """An open file that lines are added to."""

    def write(self, lines: bytes) -> None:
        """
        Hand whole lines to the storage; when this returns, a kill of the process does not lose them.

        :raises StoreError: when the storage does not take them.
        """

    def close(self) -> None:
        """
        Finish the file.

        :raises StoreError: when not all of it could be stored.
        """


class Folder(Protocol):
    """A flat folder of files that are written once."""

    @property
    def uri(self) -> str:
        """What a person finds it by."""

    @property
    def read_ahead(self) -> int:
        """How many files to open ahead of those that are read; 0 where opening is fast."""

    def sizes(self) -> dict[str, int]:
        """
        Return the bytes of all files by their names, sorted; none when the folder is not there yet.

        :raises StoreError: when it cannot be listed.
        """

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""

    def open(self, name: str) -> BinaryIO:
        """
        Open a file for reading, seekable.

        :raises FileNotFoundError: when it is not there.
        :raises StoreError: when it cannot be read.
        """

    def create(self, name: str, first: bytes = b"") -> Appender:
        """
        Create a file to append to.

        :param first: lines that it begins with; where they are, nobody else can create it any more.
        :raises FileExistsError: when the name is taken.
        :raises StoreError: when it cannot be made.
        """

    def put(self, name: str, chunks: Iterator[bytes], *, replace: bool = False) -> None:
        """
        Write a whole file in one step: readers see all of it or nothing.

        :raises FileExistsError: when the name is taken and ``replace`` is False.
        :raises StoreError: when it cannot be written.
        """

    def remove(self, name: str) -> None:
        """Remove a file; not being there is fine."""

    def retire(self, read: Mapping[str, int]) -> dict[str, bytes]:
        """
        Remove files that were read, and lose nothing that somebody still adds to them.

        :param read: how many bytes of each were read.
        :return: what had been added by the time of the removal.
        """


def open_folder(path: str, *, filesystem: Any | None = None, read_only: bool = False) -> Folder:
    """
    Open the result folder behind a path or URL.

    :param filesystem: fsspec file system of a URL; chosen from the URL when None.
    :param read_only: for a look at what is there; nothing is made.
    :raises ConfigurationError: for a URL whose file system is not known or not installed.
    :raises StoreError: when it cannot be written.
    """
    if is_local(path):
        return LocalFolder(path.rpartition("://")[2], read_only=read_only)
    files, inside = locate(path, filesystem)
    return ObjectFolder(path, files, inside, read_only=read_only)
