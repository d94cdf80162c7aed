"""What every source yields, and the protocol that all of them keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from airflow_provider_llmbatch.engine.items import BadItem, Item

#: Bytes of the largest row that is read; a larger one is a :class:`BadItem`.
MAX_ROW_BYTES = 16 * 1024 * 1024

#: Opens the source for reading, from its first byte.
OpenFile = Callable[[], BinaryIO]


class Row:
    """
    A row of a source. Its item is read when it is first asked for: rows that are only hashed cost little.

    :param index: position in the source, from 0.
    :param offset: where the row begins: bytes for JSONL, rows otherwise.
    :param raw: the row's content, for hashing.
    :param read: makes the item.
    :param may_chain: False when the item surely belongs to no group.
    """

    __slots__ = ("_item", "_read", "index", "may_chain", "offset", "raw")

    def __init__(
        self,
        *,
        index: int,
        offset: int,
        raw: bytes,
        read: Callable[[], Item | BadItem],
        may_chain: bool = True,
    ) -> None:
        self.index = index
        self.offset = offset
        self.raw = raw
        self.may_chain = may_chain
        self._read = read
        self._item: Item | BadItem | None = None

    @property
    def item(self) -> Item | BadItem:
        """What the row holds."""
        if self._item is None:
            self._item = self._read()
        return self._item

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return (self.offset, self.raw, self.item) == (other.offset, other.raw, other.item)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Tell where the row is, not what it says."""
        return f"Row(index={self.index}, offset={self.offset}, {len(self.raw)} bytes)"


class Source(Protocol):
    """A stream of items that can be read again, from the start or from a known row."""

    @property
    def uri(self) -> str:
        """Name of the source, for messages and the plan."""
        ...

    def rows(self, *, start: int = 0, offset: int = 0, stop: int | None = None) -> Iterator[Row]:
        """
        Yield rows in the order of the source, in constant memory.

        :param start: index of the first row to yield.
        :param offset: the :attr:`Row.offset` of that row; it must belong to ``start``.
        :param stop: index to stop before; None reads to the end.
        """
        ...
