"""Files that are read in about the order of their names, opened ahead where opening takes a while."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.results.folder import Folder

#: Files kept open at once.
OPEN_AT_MOST = 64


class Shelf:
    """
    Some files of a folder, by number; those used last are kept open.

    :param folder: where they are.
    :param names: of the files, about in the order of their use.
    """

    def __init__(self, folder: Folder, names: Sequence[str]) -> None:
        self._folder = folder
        self._names = names
        self._ahead = folder.read_ahead
        # Each open file of a store holds a block in memory.
        self._most = 2 * self._ahead + 1 if self._ahead else OPEN_AT_MOST
        self._pool = ThreadPoolExecutor(self._ahead, "llmbatch-read") if self._ahead else None
        self._files: dict[int, Future[BinaryIO]] = {}
        self._next = 0

    def get(self, number: int) -> BinaryIO:
        """
        Return a file, at whatever place it was left.

        :raises FileNotFoundError: when it is gone.
        :raises StoreError: when it cannot be read.
        """
        future = self._files.pop(number, None) or self._begin(number)
        self._files[number] = future
        for further in range(max(self._next, number + 1), min(number + 1 + self._ahead, len(self._names))):
            self._files[further] = self._begin(further)
            self._next = further + 1
        while len(self._files) > self._most:
            _drop(self._files.pop(next(iter(self._files))))
        return future.result()

    def close(self) -> None:
        """Close all files."""
        for future in self._files.values():
            _drop(future)
        self._files.clear()
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self, number: int) -> Future[BinaryIO]:
        if self._pool is not None:
            return self._pool.submit(self._fetch, number)
        opened: Future[BinaryIO] = Future()
        opened.set_result(self._folder.open(self._names[number]))
        return opened

    def _fetch(self, number: int) -> BinaryIO:
        """Open a file and get its first block."""
        file = self._folder.open(self._names[number])
        file.read(1)
        file.seek(0)
        return file


def _drop(future: Future[BinaryIO]) -> None:
    """Close a file, as soon as it is open."""
    if not future.cancel():
        future.add_done_callback(_close)


def _close(future: Future[BinaryIO]) -> None:
    if future.exception() is None:
        future.result().close()
