"""Where to cut a row of sizes. Pure; sizes are read several times and never copied."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

#: Reads the sizes, in tokens, once more.
Sizes = Callable[[], Iterable[int]]


@dataclass(slots=True)
class Part:
    """A run of neighbours."""

    #: how many sizes it takes
    units: int = 0
    tokens: int = 0

    def add(self, size: int) -> None:
        """Take one more size in."""
        self.units += 1
        self.tokens += size


def fill(sizes: Sizes, budget: int) -> list[Part]:
    """Return the fewest parts of at most ``budget``; a size over it has a part of its own."""
    return list(_filled(sizes, budget))


def _filled(sizes: Sizes, budget: int) -> Iterator[Part]:
    part = Part()
    for size in sizes():
        if part.units and part.tokens + size > budget:
            yield part
            part = Part()
        part.add(size)
    yield part


def raised_budget(sizes: Sizes, budget: int, most: int) -> int:
    """Return the smallest budget from ``budget`` up by which :func:`fill` makes at most ``most`` parts."""
    if _fits(sizes, budget, most):
        return budget
    # Not from the even share up: a size over the budget has a part of its own, no room in others.
    low, high = budget, sum(sizes())
    while low < high:
        middle = (low + high) // 2
        if _fits(sizes, middle, most):
            high = middle
        else:
            low = middle + 1
    return low


def _fits(sizes: Sizes, budget: int, most: int) -> bool:
    # The parts of a small budget are as many as the sizes: they are counted, never kept.
    return sum(1 for _ in itertools.islice(_filled(sizes, budget), most + 1)) <= most


def balance(sizes: Sizes, budget: int, most: int) -> list[Part]:
    """Return nearly equal parts: as few as keep to the budget, and at most ``most``."""
    total = sum(sizes())
    for count in range(min(most, max(1, -(-total // budget))), most + 1):
        parts = _even(sizes, total, count)
        if all(part.tokens <= budget or part.units == 1 for part in parts):
            break
    return parts


def _even(sizes: Sizes, total: int, count: int) -> list[Part]:
    """Cut as near as possible to each ``1 / count`` of the total."""
    part = Part()
    parts = [part]
    done, cut = 0, 1
    for size in sizes():
        # twice the middle of this size against twice the next cut, in whole numbers
        if cut < count and part.units and (2 * done + size) * count > 2 * total * cut:
            part = Part()
            parts.append(part)
            # one large size can span several cuts
            cut = max(cut + 1, done * count // total + 1)
        part.add(size)
        done += size
    return parts
