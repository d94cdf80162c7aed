"""
The ledger: the truth for money.

A try begins with ``begun``. ``sent`` stands before a call leaves, ``settled`` after it is over. A ``sent``
without its ``settled`` is a call that a kill cut off: it may have been charged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, BinaryIO

from airflow_provider_llmbatch.engine.items import Cost, Usage
from airflow_provider_llmbatch.engine.results.rows import dump_line, usage_row
from airflow_provider_llmbatch.engine.results.spending import Spending
from airflow_provider_llmbatch.errors import StoreError

_MICRO = Decimal(1_000_000)
_SENT = re.compile(rb'\{"k":"sent","i":(\d+),"t":(\d+)\}\n')


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
    #: Unix seconds at which it was over; None when not known
    at: float | None = None
    #: the model that the service names as the one that answered; empty when it does not
    served_model: str = ""
    #: ``name@version``
    prompt: str = ""


class Totals:
    """What a chunk's ledger adds up to."""

    def __init__(self) -> None:
        self.settled = 0
        self.maybe_paid = 0
        #: ``(fence, index, attempt)`` of calls that were sent and never settled
        self.open: set[tuple[int, int, int]] = set()
        self._prompt = self._cached = self._completion = self._reasoning = 0
        self._estimated = self._unpriced = False
        self._micro_usd = Decimal(0)
        #: the same by day, model and prompt
        self.spending = Spending()

    @property
    def usage(self) -> Usage:
        """Tokens of all calls."""
        return Usage(
            prompt=self._prompt,
            cached=self._cached,
            completion=self._completion,
            reasoning=self._reasoning,
            estimated=self._estimated,
        )

    @property
    def cost(self) -> Cost:
        """Money of all calls."""
        return Cost(usd=self._micro_usd / _MICRO, unpriced=self._unpriced)

    def add(self, call: Settled) -> None:
        """Count one settled call."""
        self.add_row(_row(call))

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Count one settled call of a ledger file."""
        usage, micro_usd, unpriced = row["usage"], Decimal(row["micro_usd"]), row["unpriced"]
        self.settled += 1
        self.maybe_paid += row["maybe_paid"]
        self.spending.add(
            at=row.get("at"),
            model=row.get("served") or row["model"],
            prompt=row.get("prompt", ""),
            usage=usage,
            micro_usd=micro_usd,
            unpriced=unpriced,
            maybe_paid=row["maybe_paid"],
        )
        if usage is None:
            return
        self._prompt += usage["prompt"]
        self._cached += usage["cached"]
        self._completion += usage["completion"]
        self._reasoning += usage["reasoning"]
        self._estimated |= usage["estimated"]
        self._micro_usd += micro_usd
        self._unpriced |= unpriced


def begun_line(id: str) -> bytes:
    """
    Return the line that a try begins its ledger with.

    :param id: that no other try has, so that two tries with one number notice each other.
    """
    return dump_line({"k": "begun", "id": id})


def sent_line(index: int, attempt: int) -> bytes:
    """Return the line that stands before a call leaves."""
    return b'{"k":"sent","i":%d,"t":%d}\n' % (index, attempt)


def settled_line(call: Settled) -> bytes:
    """Return the line of a call that is over; money is decimal text in micro-dollars."""
    return dump_line(_row(call))


def _row(call: Settled) -> dict[str, Any]:
    served = call.served_model if call.served_model != call.model else ""
    return {
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
        **({} if call.at is None else {"at": round(call.at)}),
        **({"served": served} if served else {}),
        **({"prompt": call.prompt} if call.prompt else {}),
    }


def read(name: str, fence: int, file: BinaryIO, totals: Totals) -> None:
    """
    Add a ledger file to ``totals``; a last line without its end is skipped.

    :raises StoreError: for a whole line that cannot be read.
    """
    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):
            continue
        if (sent := _SENT.fullmatch(line)) is not None:
            totals.open.add((fence, int(sent[1]), int(sent[2])))
            continue
        try:
            row = json.loads(line)
            if row["k"] == "begun":
                continue
            if row["k"] != "settled":
                raise KeyError("k")
            totals.add_row(row)
            totals.open.discard((row.get("f", fence), row["i"], row["t"]))
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            raise StoreError(
                f"{name} cannot be read at line {number}: it is the truth for money, so nothing is sent. "
                "Restore the file from a backup."
            ) from error


def usage_of(indexes: Iterable[int], file: BinaryIO) -> dict[int, tuple[Usage, Cost]]:
    """Return what a ledger file says about a few items."""
    wanted = set(indexes)
    found = {index: (Usage(), Cost()) for index in wanted}
    for line in file:
        if not line.endswith(b"\n") or _SENT.fullmatch(line):
            continue
        row = json.loads(line)
        if row.get("i") in wanted:
            usage, cost = found[row["i"]]
            found[row["i"]] = (usage + (_usage(row) or Usage()), cost + _cost(row))
    return found


def _usage(row: dict[str, Any]) -> Usage | None:
    return Usage(**row["usage"]) if row["usage"] else None


def _cost(row: dict[str, Any]) -> Cost:
    return Cost(usd=Decimal(row["micro_usd"]) / _MICRO, unpriced=row["unpriced"])
