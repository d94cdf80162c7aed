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
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.errors import StoreError

_HEAD = re.compile(
    rb'\{"schema_version":1,"index":(\d+),"id":"(?:[^"\\]|\\.)*","outcome":"(\w+)","round":(\d+),'
)
_OUTCOMES = tuple(Outcome)
_NUMBER = {outcome.value.encode(): number for number, outcome in enumerate(_OUTCOMES, start=1)}

# One entry: part (16 bits) · offset (38 bits) · review round (6 bits) · outcome (4 bits, 0: no row).
_OFFSET_BITS, _ROUND_BITS, _OUTCOME_BITS = 38, 6, 4
_OFFSET_SHIFT = _ROUND_BITS + _OUTCOME_BITS
_PART_SHIFT = _OFFSET_BITS + _OFFSET_SHIFT
#: A part beyond this cannot be pointed into. Bytes.
LARGEST_PART = 1 << _OFFSET_BITS


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

    def add(self, part: PartName, file: BinaryIO) -> None:
        """
        Read a part; parts come in the order of their names.

        A last line without its end is a write that was cut, and skipped.

        :raises StoreError: for a whole line that is no row, or a row of another chunk.
        """
        number = len(self._parts)
        self._parts.append(part)
        offset = 0
        for line in file:
            if line.endswith(b"\n"):
                self._enter(part, number, offset, line)
            offset += len(line)

    def _enter(self, part: PartName, number: int, offset: int, line: bytes) -> None:
        index, outcome, round_ = _head(part, offset, line)
        place = index - self._start
        if not 0 <= place < len(self._entries):
            raise StoreError(
                f"{part} holds item {index}, outside of its chunk "
                f"({self._start} to {self._start + len(self._entries) - 1}). "
                "These are results of another input; use another result_path."
            )
        entry = number << _PART_SHIFT | offset << _OFFSET_SHIFT | round_ << _OUTCOME_BITS | outcome
        if _counts_more(entry, self._entries[place]):
            self._entries[place] = entry

    def outcome(self, index: int) -> Outcome | None:
        """Return how an item ended; None when it has no row."""
        number = self._entries[index - self._start] & 0xF
        return _OUTCOMES[number - 1] if number else None

    def is_final(self, index: int) -> bool:
        """Whether a resumed run leaves the item alone."""
        outcome = self.outcome(index)
        return outcome is not None and outcome.is_final

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

    def line(self, folder: Folder, index: int) -> bytes:
        """
        Return the row of one item, as a line.

        :raises KeyError: when it has none.
        """
        entry = self._entries[index - self._start]
        if not entry & 0xF:
            raise KeyError(index)
        with folder.open(str(self._parts[entry >> _PART_SHIFT])) as file:
            file.seek(entry >> _OFFSET_SHIFT & (LARGEST_PART - 1))
            return file.readline()

    def lines(self, folder: Folder, keep: Iterable[Outcome] | None = None) -> Iterator[bytes]:
        """
        Yield the rows that count, as lines, in index order.

        :param keep: only items that ended so.
        """
        wanted = None if keep is None else {_OUTCOMES.index(o) + 1 for o in keep}
        files: dict[int, BinaryIO] = {}
        try:
            for entry in self._entries:
                outcome = entry & 0xF
                if not outcome or (wanted is not None and outcome not in wanted):
                    continue
                number = entry >> _PART_SHIFT
                if number not in files:
                    _make_room(files)
                    files[number] = folder.open(str(self._parts[number]))
                file = files[number]
                offset = entry >> _OFFSET_SHIFT & (LARGEST_PART - 1)
                if file.tell() != offset:
                    file.seek(offset)
                yield file.readline()
        finally:
            for file in files.values():
                file.close()


#: Parts kept open at once while rows are read back.
OPEN_AT_MOST = 64


def _make_room(files: dict[int, BinaryIO]) -> None:
    if len(files) >= OPEN_AT_MOST:
        files.pop(next(iter(files))).close()


def _head(part: PartName, offset: int, line: bytes) -> tuple[int, int, int]:
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
    if outcome is None or not 0 <= round_ < 1 << _ROUND_BITS:
        raise StoreError(
            f"{part} has a row with an unknown outcome or round at byte {offset}; "
            "it was written by another version of the package."
        )
    return index, outcome, round_


def _counts_more(new: int, old: int) -> bool:
    """Whether a row that is read later counts more than the one before it."""
    if not old & 0xF:
        return True
    new_round, old_round = new >> _OUTCOME_BITS & 0x3F, old >> _OUTCOME_BITS & 0x3F
    if new_round != old_round:
        return new_round > old_round
    return _final(new) and not _final(old)


def _final(entry: int) -> bool:
    return _OUTCOMES[(entry & 0xF) - 1].is_final
