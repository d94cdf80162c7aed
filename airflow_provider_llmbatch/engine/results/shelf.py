"""Files that are read in about the order of their names, opened ahead where opening takes a while."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.results.folder import Folder

#: Files kept open at once: on a disk, and on a store, where each holds a block in memory.
OPEN_AT_MOST = 64
BLOCKS_AT_MOST = 12


class Shelf:
    """
    Some files of a folder, by number; those used last are kept open.

    :param folder: where they are.
    :param names: of the files, about in the order of their use.
    """

    def __init__(self, folder: Folder, names: Sequence[str]) -> None:
        self._folder = folder
        self._names = names
        self._reach = folder.read_ahead
        self._pool = ThreadPoolExecutor(self._reach, "llmbatch-read") if self._reach else None
        self._most = BLOCKS_AT_MOST if self._reach else OPEN_AT_MOST
        self._used: dict[int, Future[BinaryIO]] = {}
        self._ahead: dict[int, Future[BinaryIO]] = {}
        #: the first file that was not opened ahead yet
        self._front: int | None = None

    def get(self, number: int) -> BinaryIO:
        """
        Return a file, at whatever place it was left.

        :raises FileNotFoundError: when it is gone.
        :raises StoreError: when it cannot be read.
        """
        future = self._used.pop(number, None) or self._ahead.pop(number, None) or self._begin(number)
        self._used[number] = future
        if len(self._used) > self._most:
            _drop(self._used.pop(next(iter(self._used))))
        self._look_ahead(number)
        return future.result()

    def _look_ahead(self, number: int) -> None:
        front = number + 1 if self._front is None else max(self._front, number + 1)
        # A single row far ahead, of an item that took long, does not move the front.
        if self._front is not None and number >= self._front + self._reach:
            return
        self._front = max(front, min(number + 1 + self._reach, len(self._names)))
        for further in range(front, self._front):
            if further not in self._used:
                self._ahead[further] = self._begin(further)
        for passed in [one for one in self._ahead if one < number - self._reach]:
            _drop(self._ahead.pop(passed))

    def close(self) -> None:
        """Close all files."""
        for future in (*self._used.values(), *self._ahead.values()):
            _drop(future)
        self._used.clear()
        self._ahead.clear()
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
