"""A file system in memory whose writes can be held up or fail."""

from __future__ import annotations

import threading
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem


class Unsteady(MemoryFileSystem):
    """An object store in memory, with faults."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        #: writes wait as long as this is not set
        self.open_for_writing = threading.Event()
        self.open_for_writing.set()
        #: raised by the next writes, one after the other; the last one stays
        self.errors: list[Exception | None] = [None]
        #: names of what was written, in order
        self.written: list[str] = []

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        self.open_for_writing.wait(30)
        error = self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]
        if error is not None:
            raise error
        super().pipe_file(path, value, mode=mode, **kwargs)
        self.written.append(path.rpartition("/")[2])
