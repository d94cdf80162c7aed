"""A file that is read in blocks, one request each."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

#: Bytes of a block.
BLOCK_BYTES = 4 * 2**20


class Blocks(io.RawIOBase):
    """
    A file of which one block is in memory: the one that was read last.

    :param read: returns the bytes from a start to a stop.
    :param size: bytes of the file.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._at = 0
        self._begin = 0
        self._block = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from the place on, as far as the block goes."""
        if self._at >= self._size:
            return 0
        begin = self._at - self._at % BLOCK_BYTES
        if begin != self._begin or not self._block:
            self._block = self._read(begin, min(begin + BLOCK_BYTES, self._size))
            self._begin = begin
        content = self._block[self._at - begin : self._at - begin + len(buffer)]
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
