"""What earlier tries of a chunk have left: rows, money, and calls that a kill cut off."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from airflow_provider_llmbatch.engine.items import Cost, Result, Usage
from airflow_provider_llmbatch.engine.results import ledger, names, rows
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.ledger import Settled, Totals
from airflow_provider_llmbatch.engine.results.names import COMPACTED, PartName
from airflow_provider_llmbatch.engine.results.shelf import Shelf
from airflow_provider_llmbatch.engine.results.where import Where, head
from airflow_provider_llmbatch.errors import StoreError

T = TypeVar("T")

#: Looks at a chunk whose parts somebody puts together meanwhile, before giving up.
LOOKS = 5

#: Files by their names, sorted, with their bytes.
Files = dict[PartName, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The state of a chunk on storage."""

    where: Where
    totals: Totals
    #: calls whose reply is in a row but not yet in the ledger
    unbooked: tuple[Settled, ...]


def steadily(folder: Folder, look: Callable[[], T]) -> T:
    """
    Look again as long as files are gone between a listing and their reading.

    :raises StoreError: when that does not end.
    """
    for _ in range(LOOKS):
        with contextlib.suppress(FileNotFoundError):
            return look()
    raise StoreError(f"The results in {folder.uri} change faster than they can be read; try again.")


def files_of(folder: Folder, chunk: int) -> tuple[Files, Files]:
    """Return a chunk's parts and ledgers, each in reading order."""
    found = ((names.parse(name), size) for name, size in folder.sizes().items())
    known = sorted((name, size) for name, size in found if name is not None and name.chunk == chunk)
    parts = {name: size for name, size in known if name.kind == "part"}
    return parts, {name: size for name, size in known if name.kind == "ledger"}


def highest_fence(folder: Folder, chunk: int) -> int:
    """Return the highest fence that has left a file; 0 when none has."""
    parts, ledgers = files_of(folder, chunk)
    return max((name.fence for name in [*parts, *ledgers]), default=0)


def spent(folder: Folder) -> tuple[Usage, Cost]:
    """Return the tokens and the money in all ledgers of a folder, whatever their chunk."""
    found = map(names.parse, folder.names())
    all_of_them = totals(folder, [name for name in found if name is not None and name.kind == "ledger"])
    return all_of_them.usage, all_of_them.cost


def counting(parts: Mapping[PartName, int], since: int) -> Files:
    """
    Return the parts that count.

    :param since: the try that began anew; what tries before it still write is not asked for any more.
    """
    return {part: size for part, size in parts.items() if part.fence == COMPACTED or part.fence >= since}


def rows_of(folder: Folder, chunk: int, start: int, stop: int, since: int = 0) -> Where:
    """
    Return where the rows of a chunk lie.

    :param since: the try that began anew; rows of tries before it do not count.
    :raises FileNotFoundError: when a part is gone since the look: parts are put together right now.
    :raises StoreError: when a part cannot be read.
    """
    where = Where(start, stop)
    where.update(folder, counting(files_of(folder, chunk)[0], since))
    return where


def survey(folder: Folder, chunk: int, start: int, stop: int, since: int = 0) -> Found:
    """
    Read everything that earlier tries of a chunk have left.

    :param since: see :func:`rows_of`.
    :raises FileNotFoundError: when a part is gone since the look.
    :raises StoreError: when anything is there that cannot be read.
    """
    where = rows_of(folder, chunk, start, stop, since)
    booked, unbooked = books(folder, chunk)
    return Found(where=where, totals=booked, unbooked=unbooked)


def books(folder: Folder, chunk: int) -> tuple[Totals, tuple[Settled, ...]]:
    """
    Return what a chunk has cost, and the part of that which its ledger does not know yet.

    A kill between a row and its ledger line leaves a reply that was paid and not booked.

    :raises FileNotFoundError: when a part is gone since the look.
    :raises StoreError: when anything is there that cannot be read.
    """
    parts, ledgers = files_of(folder, chunk)
    found = totals(folder, list(ledgers))
    unbooked = tuple(_unbooked(folder, list(ledgers), list(parts), found))
    for call in unbooked:
        found.open.discard((call.fence or 0, call.index, call.attempt))
        found.add(call)
    return found, unbooked


def totals(folder: Folder, ledgers: list[PartName]) -> Totals:
    """
    Return what some ledgers add up to.

    :raises FileNotFoundError: when one is gone since the look.
    :raises StoreError: for a line that cannot be read.
    """
    found = Totals()
    with Shelf(folder, [str(name) for name in ledgers]) as shelf:
        for number, name in enumerate(ledgers):
            ledger.read(str(name), name.fence, shelf.get(number), found)
    return found


def _unbooked(
    folder: Folder, ledgers: list[PartName], parts: list[PartName], totals: Totals
) -> Iterator[Settled]:
    """Find the calls whose row was written, but whose ledger line the kill prevented."""
    for fence in {fence for fence, _, _ in totals.open}:
        attempts = {index: attempt for f, index, attempt in totals.open if f == fence}
        found = {row.index: row for row in _rows(folder, parts, fence, attempts)}
        if not found:
            continue
        booked = {index: (Usage(), Cost()) for index in found}
        for name in (name for name in ledgers if name.fence == fence):
            with folder.open(str(name)) as file:
                for index, (usage, cost) in ledger.usage_of(found, file).items():
                    booked[index] = (booked[index][0] + usage, booked[index][1] + cost)
        for index, row in found.items():
            yield _difference(row, fence, attempts[index], *booked[index])


def _rows(folder: Folder, parts: list[PartName], fence: int, attempts: dict[int, int]) -> Iterator[Result]:
    """
    Yield the rows of a try that the reply to one of ``attempts`` has ended.

    A row that gave up says nothing about its last call, which may still have been charged.
    """
    for part in (part for part in parts if part.fence == fence):
        with folder.open(str(part)) as file:
            for line in file:
                if not line.endswith(b"\n") or head(part, 0, line)[0] not in attempts:
                    continue
                row = rows.from_row(json.loads(line))
                if row.outcome.is_final and attempts[row.index] == row.attempts:
                    yield row


def _difference(row: Result, fence: int, attempt: int, usage: Usage, cost: Cost) -> Settled:
    """Return what the row's last call adds to what the ledger knows of the item."""
    return Settled(
        index=row.index,
        attempt=attempt,
        credential=row.credential or "",
        endpoint=row.endpoint or "",
        model=row.served_model or "",
        at=row.started_at or None,
        prompt="" if row.prompt is None else str(row.prompt),
        usage=Usage(
            prompt=row.usage.prompt - usage.prompt,
            cached=row.usage.cached - usage.cached,
            completion=row.usage.completion - usage.completion,
            reasoning=row.usage.reasoning - usage.reasoning,
            estimated=row.usage.estimated,
        ),
        cost=Cost(usd=row.cost.usd - cost.usd, unpriced=row.cost.unpriced),
        fence=fence,
    )
