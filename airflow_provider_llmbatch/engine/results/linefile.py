"""A file of its own that whole lines are appended to."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from airflow_provider_llmbatch.errors import StoreError


class LineFile:
    """
    Appends whole lines, each handed to the operating system when the call returns.

    :param path: must not exist.
    :param mode: permissions, before the umask.
    :raises FileExistsError: when it does.
    :raises StoreError: when it cannot be made.
    """

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, mode)
        except FileExistsError:
            raise
        except OSError as error:
            raise StoreError(f"Cannot make {path}: {error.strerror or error}.") from error
        self._size = 0

    def append(self, lines: bytes) -> None:
        """
        Add lines, or nothing.

        :raises StoreError: when the disk does not take them.
        """
        written = 0
        try:
            written = os.write(self.descriptor, lines)
            if written < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            if written:
                os.ftruncate(self.descriptor, self._size)
            raise StoreError(
                f"Cannot write to {self.path}: {error.strerror or error}. Make room and clear the task."
            ) from error
        self._size += written

    @property
    def is_removed(self) -> bool:
        """Whether somebody has taken the name away."""
        return os.fstat(self.descriptor).st_nlink == 0

    def close(self) -> None:
        """Let go of the file; as often as you like."""
        # Somebody else may have the number of a descriptor that is closed.
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def whole_lines(content: bytes) -> bytes:
    """Return content without a last line that was cut."""
    return content[: content.rfind(b"\n") + 1]
