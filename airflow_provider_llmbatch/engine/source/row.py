"""What every source yields, and the protocol that all of them keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from airflow_provider_llmbatch.engine.items import BadItem, Item

#: Bytes of the largest row that is read; a larger one is a :class:`BadItem`.
MAX_ROW_BYTES = 16 * 1024 * 1024

#: Opens the source for reading, from its first byte.
OpenFile = Callable[[], BinaryIO]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An item and where it came from."""

    item: Item | BadItem
    #: where the row begins: bytes for JSONL, rows otherwise
    offset: int
    #: the row's content, for hashing
    raw: bytes


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
