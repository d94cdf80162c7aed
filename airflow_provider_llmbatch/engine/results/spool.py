"""
Where lines wait on this host's disk until their part is stored.

``<temporary directory>/llmbatch-spool/<hash of user and folder>/<name of the part>``. A file is locked as
long as the process that fills it lives, so whoever finds one unlocked knows that its writer is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from airflow_provider_llmbatch.engine.results import names
from airflow_provider_llmbatch.engine.results.linefile import LineFile, whole_lines
from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.errors import StoreError


class SpoolFile(LineFile):
    """
    A file of the spool that this process fills.

    :param path: must not exist.
    :param name: the part that it becomes.
    """

    def __init__(self, path: Path, name: PartName) -> None:
        super().__init__(path, 0o600)
        self.name = name
        # Waits, for a moment, for one who looks whether this new file is a dead one.
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)

    def content(self) -> bytes:
        """Return the whole lines that it holds."""
        return whole_lines(os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0))

    def remove(self) -> None:
        """Remove the file: what it held is stored."""
        self.path.unlink(missing_ok=True)
        self.close()


class Spool:
    """
    The spool of one folder.

    :param root: directory of all spools; made when it is not there.
    :param uri: the folder that the lines are for.
    """

    def __init__(self, root: Path, uri: str) -> None:
        self._root = root
        self.path = root / hashlib.sha256(f"{os.geteuid()} {uri}".encode()).hexdigest()[:32]

    def create(self, name: PartName) -> SpoolFile:
        """
        Start a file.

        :raises FileExistsError: when somebody else fills one of that name.
        :raises StoreError: when the disk does not take it.
        """
        while True:
            self._make()
            file = SpoolFile(self.path / str(name), name)
            if not file.is_removed:
                return file
            file.close()

    @contextmanager
    def left(self) -> Iterator[Iterator[tuple[PartName, bytes]]]:
        """
        Yield what processes that are gone have left, in the order of their writing.

        Whoever asks at the same time waits until this one is done. A file is removed when the next one is
        asked for.

        :raises StoreError: when the spool cannot be read.
        """
        with ExitStack() as stack:
            try:
                if not self.path.is_dir():
                    yield iter(())
                    return
                descriptor = os.open(self.path, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                # Closed at once, so that what could not be stored is not locked by its reader.
                yield stack.enter_context(contextlib.closing(self._dead()))
            except OSError as error:
                raise StoreError(
                    f"The spool {self.path} cannot be read: {error.strerror or error}. It holds results that "
                    "are not stored yet; make it readable for this user."
                ) from error

    def tidy(self) -> None:
        """Remove the directory if it is empty."""
        with contextlib.suppress(OSError):
            self.path.rmdir()

    def _dead(self) -> Generator[tuple[PartName, bytes], None, None]:
        found = [name for name in map(names.parse, os.listdir(self.path)) if name is not None]
        # The ledger first, so that a row never stands without the call that brought it.
        for name in sorted(found, key=lambda name: (name.kind != "ledger", name)):
            with contextlib.suppress(FileNotFoundError), open(self.path / str(name), "r+b") as file:
                if not _is_dead(file.fileno()):
                    continue
                yield name, whole_lines(file.read())
                (self.path / str(name)).unlink(missing_ok=True)

    def _make(self) -> None:
        try:
            with contextlib.suppress(FileExistsError):
                self._root.mkdir(parents=True)
                # Other users of the host keep their spools beside this one.
                self._root.chmod(0o1777)
            self.path.mkdir(mode=0o700, exist_ok=True)
            owner = self.path.lstat()
        except OSError as error:
            raise StoreError(
                f"Cannot make the spool {self.path}: {error.strerror or error}. Give this user a temporary "
                "directory (TMPDIR) that it can write."
            ) from error
        if owner.st_uid != os.geteuid() or not stat.S_ISDIR(owner.st_mode):
            raise StoreError(f"The spool {self.path} belongs to somebody else; remove it or set TMPDIR.")


def _is_dead(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.fstat(descriptor).st_nlink > 0
