"""
Where each item's row lies: eight bytes an item, whatever the number of parts.

One pass over the parts finds, per item, the row that counts: the highest review round, then a final
outcome before one that is not, then the lowest fence.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.engine.results.shelf import Shelf
from airflow_provider_llmbatch.errors import StoreError

_HEAD = re.compile(
    rb'\{"schema_version":1,"index":(\d+),"id":"(?:[^"\\]|\\.)*","outcome":"(\w+)","round":(\d+),'
)
_OUTCOMES = tuple(Outcome)
_NUMBER = {outcome.value.encode(): number for number, outcome in enumerate(_OUTCOMES, start=1)}

# One entry: part (16 bits) · offset (38 bits) · review round (6 bits) · outcome (4 bits, 0: no row).
_PART_BITS, _OFFSET_BITS, _ROUND_BITS, _OUTCOME_BITS = 16, 38, 6, 4
_OFFSET_SHIFT = _ROUND_BITS + _OUTCOME_BITS
_PART_SHIFT = _OFFSET_BITS + _OFFSET_SHIFT
#: A part beyond this cannot be pointed into. Bytes.
LARGEST_PART = 1 << _OFFSET_BITS
MOST_PARTS = 1 << _PART_BITS
MOST_ROUNDS = (1 << _ROUND_BITS) - 1


class Where:
    """
    The rows that count, for the items ``start`` to ``stop``.

    :param start: first index.
    :param stop: one past the last.
    """

    def __init__(self, start: int, stop: int) -> None:
        self._start = start
        self._entries = array("Q", bytes(8 * (stop - start)))
        self._parts: list[PartName] = []
        self._numbers: dict[PartName, int] = {}
        #: how far each part was read
        self.read: dict[PartName, int] = {}

    def update(self, folder: Folder, sizes: Mapping[PartName, int]) -> None:
        """
        Read what parts hold beyond what has been read of them.

        :param sizes: bytes of each part.
        :raises FileNotFoundError: when one is gone meanwhile.
        :raises StoreError: when one cannot be read.
        """
        longer = sorted(part for part, size in sizes.items() if size > self.read.get(part, 0))
        with Shelf(folder, [str(part) for part in longer]) as shelf:
            for number, part in enumerate(longer):
                self.add(part, shelf.get(number))

    def add(self, part: PartName, file: BinaryIO) -> None:
        """
        Read a part from where it was read last.

        A last line without its end is a write that was cut, and left.

        :raises StoreError: for a whole line that is no row, or a row of another chunk.
        """
        if part not in self._numbers:
            self._numbers[part] = len(self._parts)
            self._parts.append(part)
        number = self._numbers[part]
        offset = self.read.get(part, 0)
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                break
            self._enter(part, number, offset, line)
            offset += len(line)
        self.read[part] = offset
        if offset > LARGEST_PART or number >= MOST_PARTS:
            raise StoreError(
                f"{part} has {offset:,} bytes and is one of {number + 1} parts; {LARGEST_PART:,} bytes and "
                f"{MOST_PARTS:,} parts are the most. Split the source into more chunks."
            )

    def _enter(self, part: PartName, number: int, offset: int, line: bytes) -> None:
        index, outcome, round_ = head(part, offset, line)
        place = index - self._start
        if not 0 <= place < len(self._entries):
            raise StoreError(
                f"{part} holds item {index}, outside of its chunk "
                f"({self._start} to {self._start + len(self._entries) - 1}). "
                "These are results of another input; use another result_path."
            )
        entry = number % MOST_PARTS << _PART_SHIFT | offset % LARGEST_PART << _OFFSET_SHIFT
        entry |= round_ << _OUTCOME_BITS | outcome
        if self._counts_more(entry, self._entries[place]):
            self._entries[place] = entry

    def _counts_more(self, new: int, old: int) -> bool:
        if not old & 0xF:
            return True
        new_round, old_round = (entry >> _OUTCOME_BITS & MOST_ROUNDS for entry in (new, old))
        if new_round != old_round:
            return new_round > old_round
        if _final(new) != _final(old):
            return _final(new)
        return self._parts[new >> _PART_SHIFT] < self._parts[old >> _PART_SHIFT]

    def outcome(self, index: int) -> Outcome | None:
        """Return how an item ended; None when it has no row."""
        number = self._entries[index - self._start] & 0xF
        return _OUTCOMES[number - 1] if number else None

    def is_final(self, index: int) -> bool:
        """Whether a resumed run leaves the item alone."""
        outcome = self.outcome(index)
        return outcome is not None and outcome.is_final

    def round(self, index: int) -> int:
        """Return the review round of the item's row; 0 when it has none."""
        return self._entries[index - self._start] >> _OUTCOME_BITS & MOST_ROUNDS

    def highest_round(self) -> int:
        """Return the highest review round of any row."""
        return max((entry >> _OUTCOME_BITS & MOST_ROUNDS for entry in self._entries), default=0)

    def fence(self, index: int) -> int | None:
        """Return the fence of the part that holds the item's row."""
        entry = self._entries[index - self._start]
        return self._parts[entry >> _PART_SHIFT].fence if entry & 0xF else None

    def counts(self) -> dict[Outcome, int]:
        """Return how many items ended how; items without a row are ``unsent``."""
        numbers = Counter(entry & 0xF for entry in self._entries)
        counts = {_OUTCOMES[number - 1]: n for number, n in numbers.items() if number}
        if numbers[0]:
            counts[Outcome.UNSENT] = counts.get(Outcome.UNSENT, 0) + numbers[0]
        return counts

    def shelf(self, folder: Folder) -> Shelf:
        """Return the parts, to read lines from."""
        return Shelf(folder, [str(part) for part in self._parts])

    def line(self, shelf: Shelf, index: int) -> bytes:
        """
        Return the row of one item, as a line.

        :param shelf: from :meth:`shelf`.
        :raises KeyError: when the item has no row.
        :raises FileNotFoundError: when its part is gone.
        """
        entry = self._entries[index - self._start]
        if not entry & 0xF:
            raise KeyError(index)
        return _line(shelf.get(entry >> _PART_SHIFT), entry)

    def lines(
        self, folder: Folder, keep: Iterable[Outcome] | None = None, *, start: int | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """
        Yield the index and the row that counts of each item that has one, in index order.

        :param keep: only items that ended so.
        :param start: only from this index on.
        :raises FileNotFoundError: when a part is gone.
        """
        wanted = frozenset(range(1, 16)) if keep is None else {_OUTCOMES.index(o) + 1 for o in keep}
        first = self._start if start is None else start
        number, file = -1, None
        with self.shelf(folder) as shelf:
            for index in range(first, self._start + len(self._entries)):
                entry = self._entries[index - self._start]
                if entry & 0xF not in wanted:
                    continue
                if file is None or entry >> _PART_SHIFT != number:
                    number = entry >> _PART_SHIFT
                    file = shelf.get(number)
                yield index, _line(file, entry)

    def settle(self, part: PartName, offsets: array[int], end: int) -> None:
        """Take in that all rows lie in one part now, in index order, at these offsets."""
        place = 0
        for number, entry in enumerate(self._entries):
            if entry & 0xF:
                self._entries[number] = offsets[place] << _OFFSET_SHIFT | entry & (1 << _OFFSET_SHIFT) - 1
                place += 1
        self._parts, self._numbers, self.read = [part], {part: 0}, {part: end}


class Move:
    """
    The rows that count on their way into one part: iterate to write them, then :meth:`settle`.

    :param where: points to them where they were, until they are settled.
    :param folder: where they are read from.
    :param part: where they go.
    """

    def __init__(self, where: Where, folder: Folder, part: PartName) -> None:
        self._where = where
        self._folder = folder
        self._part = part
        self._offsets = array("Q")
        self._end = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the rows as lines."""
        for _, line in self._where.lines(self._folder):
            self._offsets.append(self._end)
            self._end += len(line)
            yield line

    def settle(self) -> None:
        """Let ``where`` point to the new part, and to no other."""
        self._where.settle(self._part, self._offsets, self._end)


def head(part: PartName, offset: int, line: bytes) -> tuple[int, int, int]:
    """
    Return a row's index, the number of its outcome and its review round.

    :raises StoreError: when it is no row.
    """
    match = _HEAD.match(line)
    if match is not None:
        index, outcome, round_ = int(match[1]), _NUMBER.get(match[2]), int(match[3])
    else:
        try:
            row = json.loads(line)
            index, outcome, round_ = row["index"], _NUMBER.get(row["outcome"].encode()), row["round"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{part} has a line that is no result row, at byte {offset}. Restore the file, or move it "
                "away to pay for its items again."
            ) from error
    if outcome is None or not 0 <= round_ <= MOST_ROUNDS:
        raise StoreError(
            f"{part} has a row with an unknown outcome or round at byte {offset}; "
            "it was written by another version of the package."
        )
    return index, outcome, round_


def _line(file: BinaryIO, entry: int) -> bytes:
    offset = entry >> _OFFSET_SHIFT & (LARGEST_PART - 1)
    if file.tell() != offset:
        file.seek(offset)
    return file.readline()


def _final(entry: int) -> bool:
    return _OUTCOMES[(entry & 0xF) - 1].is_final
