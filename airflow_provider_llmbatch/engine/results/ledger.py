"""
The ledger: the truth for money.

``sent`` stands before a call leaves, ``settled`` after it is over. A ``sent`` without its ``settled``
is a call that a kill cut off: it may have been charged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, BinaryIO

from airflow_provider_llmbatch.engine.items import Cost, Usage
from airflow_provider_llmbatch.engine.results.rows import dump_line, usage_row
from airflow_provider_llmbatch.errors import StoreError

_MICRO = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """One call that is over."""

    index: int
    attempt: int
    credential: str
    endpoint: str
    model: str
    status: int | None = None
    #: None when there is no reply to count
    usage: Usage | None = None
    cost: Cost = Cost()
    #: it may have been charged, but left no reply
    maybe_paid: bool = False
    #: the try that sent it, when a later try writes this line for it
    fence: int | None = None


@dataclass(slots=True)
class Totals:
    """What a chunk's ledger adds up to."""

    usage: Usage = Usage()
    cost: Cost = Cost()
    settled: int = 0
    maybe_paid: int = 0
    #: ``(fence, index, attempt)`` of calls that were sent and never settled
    open: set[tuple[int, int, int]] = field(default_factory=set)

    def add(self, usage: Usage | None, cost: Cost, maybe_paid: bool) -> None:
        """Count one settled call."""
        self.settled += 1
        self.maybe_paid += maybe_paid
        if usage is not None:
            self.usage += usage
            self.cost += cost


def sent_line(index: int, attempt: int) -> bytes:
    """Return the line that stands before a call leaves."""
    return b'{"k":"sent","i":%d,"t":%d}\n' % (index, attempt)


def settled_line(call: Settled) -> bytes:
    """Return the line of a call that is over; money is decimal text in micro-dollars."""
    return dump_line(
        {
            "k": "settled",
            "i": call.index,
            "t": call.attempt,
            "status": call.status,
            "maybe_paid": call.maybe_paid,
            "credential": call.credential,
            "endpoint": call.endpoint,
            "model": call.model,
            "usage": call.usage and usage_row(call.usage),
            "micro_usd": format(call.cost.usd * _MICRO, "f"),
            "unpriced": call.cost.unpriced,
            **({} if call.fence is None else {"f": call.fence}),
        }
    )


def read(name: str, fence: int, file: BinaryIO, totals: Totals) -> None:
    """
    Add a ledger file to ``totals``; a last line without its end is skipped.

    :raises StoreError: for a whole line that cannot be read.
    """
    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):
            continue
        row = _parse(name, number, line)
        key = (row.get("f", fence), row["i"], row["t"])
        if row["k"] == "sent":
            totals.open.add(key)
        else:
            totals.open.discard(key)
            totals.add(_usage(row), _cost(row), row["maybe_paid"])


def usage_of(indexes: Iterable[int], file: BinaryIO) -> dict[int, tuple[Usage, Cost]]:
    """Return what a ledger file says about a few items."""
    wanted = set(indexes)
    found = {index: (Usage(), Cost()) for index in wanted}
    for line in file:
        row = json.loads(line) if line.endswith(b"\n") else {"k": ""}
        if row["k"] == "settled" and row["i"] in wanted:
            usage, cost = found[row["i"]]
            found[row["i"]] = (usage + (_usage(row) or Usage()), cost + _cost(row))
    return found


def _parse(name: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(line)
        if row["k"] not in ("sent", "settled"):
            raise KeyError("k")
        return row
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{name} cannot be read at line {number}: it is the truth for money, so nothing is sent. "
            "Restore the file from a backup."
        ) from error


def _usage(row: dict[str, Any]) -> Usage | None:
    return Usage(**row["usage"]) if row["usage"] else None


def _cost(row: dict[str, Any]) -> Cost:
    return Cost(usd=Decimal(row["micro_usd"]) / _MICRO, unpriced=row["unpriced"])
