"""What calls have cost, by day, model that served them, and prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from airflow_provider_llmbatch.engine.items import Usage

_MICRO = Decimal(1_000_000)
_DAY_S = 86400
_TOKENS = ("prompt", "cached", "completion", "reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The calls of one day, model and prompt."""

    #: ISO date in UTC; empty when the ledger does not say
    day: str
    #: the model that answered, as the service named it; else the one that was asked for
    model: str
    #: ``name@version``; empty when the ledger does not say
    prompt: str
    #: calls that were answered, and those among them without a known price
    calls: int = 0
    unpriced: int = 0
    #: calls that may have been charged without leaving a reply
    maybe_paid: int = 0
    usage: Usage = Usage()
    usd: Decimal = Decimal(0)

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON values; money is decimal text in US dollars."""
        tokens = {name: getattr(self.usage, name) for name in (*_TOKENS, "estimated")}
        counts = {"calls": self.calls, "unpriced": self.unpriced, "maybe_paid": self.maybe_paid}
        who = {"day": self.day, "model": self.model, "prompt": self.prompt}
        return {**who, **counts, "usage": tokens, "usd": format(self.usd, "f")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spent:
        """
        Read what :meth:`to_json` wrote.

        :raises KeyError: or TypeError, or ArithmeticError, for a foreign document.
        """
        return cls(**{**data, "usage": Usage(**data["usage"]), "usd": Decimal(data["usd"])})


class Spending:
    """Adds calls up."""

    def __init__(self) -> None:
        #: calls, unpriced, maybe paid, the tokens, whether estimated
        self._counts: dict[tuple[str, str, str], list[int]] = {}
        self._micro_usd: dict[tuple[str, str, str], Decimal] = {}

    def add(
        self,
        *,
        at: float | None,
        model: str,
        prompt: str,
        usage: Mapping[str, Any] | None,
        micro_usd: Decimal,
        unpriced: bool,
        maybe_paid: bool,
    ) -> None:
        """
        Count a call; one that cost nothing is none.

        :param at: Unix seconds of its end; None when not known.
        :param usage: tokens as a ledger has them; None when there is no reply to count.
        """
        if usage is None and not maybe_paid:
            return
        key = ("" if at is None else _day(int(at // _DAY_S)), model, prompt)
        counts = self._counts.setdefault(key, [0] * 8)
        counts[2] += maybe_paid
        if usage is None:
            return
        counts[0] += 1
        counts[1] += unpriced
        for place, name in enumerate(_TOKENS, start=3):
            counts[place] += usage[name]
        counts[7] |= usage["estimated"]
        self._micro_usd[key] = self._micro_usd.get(key, Decimal(0)) + micro_usd

    def rows(self) -> list[Spent]:
        """Return the sums, by day, model and prompt."""
        return [
            Spent(
                day=day,
                model=model,
                prompt=prompt,
                calls=counts[0],
                unpriced=counts[1],
                maybe_paid=counts[2],
                usage=Usage(**dict(zip(_TOKENS, counts[3:7], strict=True)), estimated=bool(counts[7])),
                usd=self._micro_usd.get((day, model, prompt), Decimal(0)) / _MICRO,
            )
            for (day, model, prompt), counts in sorted(self._counts.items())
        ]


def summed(rows: Iterable[Spent], **who: str) -> Spent:
    """Return the sum of some rows, under another name."""
    usage, usd = Usage(), Decimal(0)
    calls = unpriced = maybe_paid = 0
    for row in rows:
        usage, usd = usage + row.usage, usd + row.usd
        calls, unpriced = calls + row.calls, unpriced + row.unpriced
        maybe_paid += row.maybe_paid
    named = {"day": "", "model": "", "prompt": "", **who}
    return Spent(**named, calls=calls, unpriced=unpriced, maybe_paid=maybe_paid, usage=usage, usd=usd)


@lru_cache(maxsize=512)
def _day(number: int) -> str:
    """Return the date of a day, counted from 1970-01-01."""
    return datetime.fromtimestamp(number * _DAY_S, UTC).date().isoformat()
