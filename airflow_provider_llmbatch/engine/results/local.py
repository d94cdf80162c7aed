"""A result folder on a local or shared disk."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from airflow_provider_llmbatch.engine.results import names
from airflow_provider_llmbatch.engine.results.linefile import LineFile
from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.errors import StoreError


class LocalFolder:
    """
    A folder on a local or shared disk.

    :param path: made when it is not there.
    :param read_only: make nothing, and do not ask whether it can be written.
    :raises StoreError: when it cannot be made or written.
    """

    #: a disk is fast enough without
    read_ahead = 0

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self._path = Path(path)
        if not read_only:
            self._make()

    def _make(self) -> None:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"Cannot make the result folder {self._path}: {error.strerror or error}. "
                "Give result_path (or [llmbatch] results_path) a folder that this user can write."
            ) from error
        if not os.access(self._path, os.W_OK | os.X_OK):
            raise StoreError(
                f"The result folder {self._path} is not writable for this user. "
                "Give result_path (or [llmbatch] results_path) a folder that is."
            )

    @property
    def uri(self) -> str:
        """The absolute path."""
        return str(self._path.resolve())

    def sizes(self) -> dict[str, int]:
        """See :meth:`.Folder.sizes`."""
        try:
            return dict(sorted(_sizes(self._path)))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(
                f"The folder {self._path} cannot be listed: {error.strerror or error}."
            ) from error

    def names(self) -> list[str]:
        """See :meth:`.Folder.names`."""
        return list(self.sizes())

    def open(self, name: str) -> BinaryIO:
        """See :meth:`.Folder.open`."""
        try:
            return open(self._path / name, "rb")
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            raise StoreError(f"{self._path / name} cannot be read: {error.strerror or error}.") from error

    def create(self, name: str, first: bytes = b"") -> LocalAppender:
        """See :meth:`.Folder.create`."""
        part = names.parse(name)
        if part is None:
            raise ValueError(f"{name} is neither a part nor a ledger")
        appender = LocalAppender(self._path, part)
        appender.write(first)
        return appender

    def put(self, name: str, chunks: Iterator[bytes], *, replace: bool = False) -> None:
        """See :meth:`.Folder.put`."""
        # Hosts that share the disk may have processes with the same number.
        writer = f"{socket.gethostname()}.{os.getpid()}.{threading.get_native_id()}"
        draft = self._path / f".{name}.{writer}.draft"
        try:
            with open(draft, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                # What it replaces may be on the disk already; a power failure must not leave less.
                file.flush()
                os.fsync(file.fileno())
            if replace:
                os.replace(draft, self._path / name)
            else:
                _publish(draft, self._path / name)
            _sync_names(self._path)
        except FileExistsError:
            raise
        except OSError as error:
            raise StoreError(f"Cannot write {self._path / name}: {error.strerror or error}.") from error
        finally:
            draft.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """See :meth:`.Folder.remove`."""
        try:
            (self._path / name).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"Cannot remove {self._path / name}: {error.strerror or error}.") from error

    def retire(self, read: Mapping[str, int]) -> dict[str, bytes]:
        """See :meth:`.Folder.retire`."""
        late = {}
        for name, end in read.items():
            # Whoever appends after the removal notices it by himself; see LocalAppender.write.
            with contextlib.suppress(FileNotFoundError), self.open(name) as file:
                self.remove(name)
                file.seek(end)
                late[name] = file.read()
        return {name: tail for name, tail in late.items() if tail}


class LocalAppender:
    """
    Appends whole lines to a file of its own.

    :param directory: where it is.
    :param name: of the file; must not be taken.
    """

    def __init__(self, directory: Path, name: PartName) -> None:
        self._directory = directory
        self._name = name
        self._file = LineFile(directory / str(name))

    def write(self, lines: bytes) -> None:
        """See :meth:`.Appender.write`."""
        self._file.append(lines)
        if self._file.is_removed:
            # Another try has put the parts together and removed this one, perhaps before it saw these
            # lines. They go into a new file as well; a row that is there twice counts once.
            self._file.close()
            self._file = self._further()
            self._file.append(lines)

    def close(self) -> None:
        """See :meth:`.Appender.close`."""
        self._file.close()

    def _further(self) -> LineFile:
        """Create the next file: no name is used twice, so that nobody takes it for the old one."""
        while True:
            self._name = replace(self._name, n=self._name.n + 1)
            with contextlib.suppress(FileExistsError):
                return LineFile(self._directory / str(self._name))


def _sizes(path: Path) -> Iterator[tuple[str, int]]:
    for entry in os.scandir(path):
        with contextlib.suppress(FileNotFoundError):
            if entry.is_file():
                yield entry.name, entry.stat().st_size


def _publish(draft: Path, path: Path) -> None:
    """Give the draft its name, exclusively where the file system has hard links."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        os.replace(draft, path)


def _sync_names(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
