"""
Which process encodes which rows: bags stay where they are as far as loads stay even.

Standard library only.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

#: Largest load over the mean load that is let be, so that fewer rows move.
EVEN = 1.1


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """Rows of a bag that one process encodes."""

    rank: int
    bag: int
    #: first row of it, and the one after the last
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.stop - self.start


def balance_bags(rows: Sequence[int], ranks: int, homes: Sequence[int] | None = None) -> list[Piece]:
    """
    Spread bags over processes, by their rows.

    Bags stay whole and at home while their process has room, longest first; what is left goes, longest first,
    to the process with the least to do, and is cut only where it does not fit there. No load is above
    :data:`EVEN` times the mean one, or the mean rounded up.

    :param rows: of each bag; a bag without any gets no piece.
    :param ranks: how many processes there are.
    :param homes: of each bag, the process that has it; None: it is no matter where it goes.
    :return: pieces in the order of processes, bags and rows; the same for the same arguments.
    """
    total = sum(rows)
    room = max(-(-total // ranks), int(EVEN * total / ranks))
    loads = [0] * ranks
    pieces, left = [], []
    for bag in sorted(range(len(rows)), key=lambda bag: (-rows[bag], bag)):
        home = None if homes is None else homes[bag]
        if home is not None and loads[home] + rows[bag] <= room:
            loads[home] += rows[bag]
            pieces.append(Piece(home, bag, 0, rows[bag]))
        else:
            left.append(bag)
    free = [(load, rank) for rank, load in enumerate(loads)]
    heapq.heapify(free)
    for bag in left:
        start = 0
        while start < rows[bag]:
            load, rank = free[0]
            stop = min(rows[bag], start + room - load)
            pieces.append(Piece(rank, bag, start, stop))
            heapq.heapreplace(free, (load + stop - start, rank))
            start = stop
    return sorted(piece for piece in pieces if piece.rows)
