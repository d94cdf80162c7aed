"""What earlier tries of a chunk have left: rows, money, and calls that a kill cut off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from airflow_provider_llmbatch.engine.items import Cost, Result, Usage
from airflow_provider_llmbatch.engine.results import ledger, names, rows
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.ledger import Settled, Totals
from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.engine.results.where import Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The state of a chunk on storage."""

    where: Where
    totals: Totals
    #: calls whose reply is in a row but not yet in the ledger
    unbooked: tuple[Settled, ...]


def files_of(folder: Folder, chunk: int) -> tuple[list[PartName], list[PartName]]:
    """Return a chunk's parts and ledgers, each in reading order."""
    known = [name for name in map(names.parse, folder.names()) if name is not None and name.chunk == chunk]
    parts = sorted(name for name in known if name.kind == "part")
    return parts, sorted(name for name in known if name.kind == "ledger")


def highest_fence(folder: Folder, chunk: int) -> int:
    """Return the highest fence that has left a file; 0 when none has."""
    parts, ledgers = files_of(folder, chunk)
    return max((name.fence for name in [*parts, *ledgers]), default=0)


def spent(folder: Folder) -> Decimal:
    """Return the US dollars in all ledgers of a folder, whatever their chunk."""
    totals = Totals()
    for name in map(names.parse, folder.names()):
        if name is not None and name.kind == "ledger":
            with folder.open(str(name)) as file:
                ledger.read(str(name), name.fence, file, totals)
    return totals.cost.usd


def rows_of(folder: Folder, chunk: int, start: int, stop: int) -> Where:
    """
    Return where the rows of a chunk lie.

    :raises StoreError: when a part cannot be read.
    """
    where = Where(start, stop)
    for part in files_of(folder, chunk)[0]:
        with folder.open(str(part)) as file:
            where.add(part, file)
    return where


def survey(folder: Folder, chunk: int, start: int, stop: int) -> Found:
    """
    Read everything that earlier tries of a chunk have left.

    :raises StoreError: when anything is there that cannot be read.
    """
    parts, ledgers = files_of(folder, chunk)
    where = rows_of(folder, chunk, start, stop)
    totals = Totals()
    for name in ledgers:
        with folder.open(str(name)) as file:
            ledger.read(str(name), name.fence, file, totals)
    unbooked = tuple(_unbooked(folder, ledgers, parts, totals))
    for call in unbooked:
        totals.open.discard((call.fence or 0, call.index, call.attempt))
        totals.add(call.usage, call.cost, maybe_paid=False)
    return Found(
        where=where,
        totals=totals,
        unbooked=unbooked,
    )


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
    for part in (part for part in parts if part.fence == fence):
        with folder.open(str(part)) as file:
            for line in file:
                if not line.endswith(b"\n"):
                    continue
                row = json.loads(line)
                if attempts.get(row["index"]) == row["attempts"]:
                    yield rows.from_row(row)


def _difference(row: Result, fence: int, attempt: int, usage: Usage, cost: Cost) -> Settled:
    """Return what the row's last call adds to what the ledger knows of the item."""
    return Settled(
        index=row.index,
        attempt=attempt,
        credential=row.credential or "",
        endpoint=row.endpoint or "",
        model=row.served_model or "",
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
