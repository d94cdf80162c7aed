"""The place of a run's results: a handful of operations that a local disk and an object store share."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from airflow_provider_llmbatch.errors import StoreError


class Appender(Protocol):
    """An open file that lines are added to."""

    def write(self, lines: bytes) -> None:
        """
        Hand whole lines to the storage; when this returns, a kill of the process does not lose them.

        :raises StoreError: when the storage does not take them.
        """

    def close(self) -> None:
        """Finish the file."""


class Folder(Protocol):
    """A flat folder of files that are written once."""

    @property
    def uri(self) -> str:
        """What a person finds it by."""

    def names(self) -> list[str]:
        """Return the names of all files, sorted; none when the folder is not there yet."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading, seekable."""

    def create(self, name: str) -> Appender:
        """
        Create a file to append to.

        :raises FileExistsError: when the name is taken.
        """

    def put(self, name: str, chunks: Iterator[bytes], *, replace: bool = False) -> None:
        """
        Write a whole file in one step: readers see all of it or nothing.

        :raises FileExistsError: when the name is taken and ``replace`` is False.
        """

    def remove(self, name: str) -> None:
        """Remove a file; not being there is fine."""


class LocalFolder:
    """
    A folder on a local or shared disk.

    :param path: made when it is not there.
    :raises StoreError: when it cannot be made or written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
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

    def names(self) -> list[str]:
        """See :meth:`Folder.names`."""
        return sorted(entry.name for entry in os.scandir(self._path) if entry.is_file())

    def open(self, name: str) -> BinaryIO:
        """See :meth:`Folder.open`."""
        return open(self._path / name, "rb")

    def create(self, name: str) -> Appender:
        """See :meth:`Folder.create`."""
        return LocalAppender(self._path / name)

    def put(self, name: str, chunks: Iterator[bytes], *, replace: bool = False) -> None:
        """See :meth:`Folder.put`."""
        draft = self._path / f".{name}.{os.getpid()}.draft"
        try:
            with open(draft, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
            if replace:
                os.replace(draft, self._path / name)
            else:
                _publish(draft, self._path / name)
        except FileExistsError:
            raise
        except OSError as error:
            raise StoreError(f"Cannot write {self._path / name}: {error}.") from error
        finally:
            draft.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """See :meth:`Folder.remove`."""
        (self._path / name).unlink(missing_ok=True)


class LocalAppender:
    """
    Appends whole lines to a file of its own.

    :param path: must not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = _create(path)
        self._size = 0

    def write(self, lines: bytes) -> None:
        """See :meth:`Appender.write`."""
        if os.fstat(self._descriptor).st_nlink == 0:
            # A newer try has put the parts together and removed this one: what comes late goes into
            # a new file of the same name, where readers still find it.
            self.close()
            self._descriptor, self._size = _create(self._path), 0
        written = 0
        try:
            written = os.write(self._descriptor, lines)
            if written < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            if written:
                os.ftruncate(self._descriptor, self._size)
            raise StoreError(
                f"Cannot write to {self._path}: {error}. Make room and clear the task."
            ) from error
        self._size += written

    def close(self) -> None:
        """See :meth:`Appender.close`."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)


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


def open_folder(path: str) -> Folder:
    """
    Open the result folder behind a path.

    :raises StoreError: when it cannot be written.
    """
    return LocalFolder(path.removeprefix("file://"))
