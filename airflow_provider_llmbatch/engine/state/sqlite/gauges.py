"""Gauges of one transaction: loaded when asked for, written back when changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from airflow_provider_llmbatch.engine.state import arithmetic
from airflow_provider_llmbatch.engine.state.arithmetic import Gauge
from airflow_provider_llmbatch.engine.state.protocols import Grant, Meter, Need, Settlement, Told


class Gauges:
    """
    The gauges of a scope's meters at one moment.

    :param connection: inside a transaction that writes.
    :param meters: what the scope takes from.
    :param now: state time of the transaction.
    :param factor: share of every rate that throttling leaves.
    :param told: what the service said about them.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        meters: Sequence[Meter],
        now: float,
        factor: float,
        told: Mapping[Meter, Told] = MappingProxyType({}),
    ) -> None:
        self._connection = connection
        self._now = now
        self._factor = factor
        self._told = told
        self._limits = {meter: self._limit(meter) for meter in meters}
        self._gauges = {meter: self._load(meter) for meter in meters}
        self._touched: set[tuple[Meter, int]] = set()

    def _limit(self, meter: Meter) -> int:
        """Return the capacity, or what the service says it is where that is less; keep what it says."""
        if meter.window_s is None:
            return meter.capacity
        told = self._told.get(meter)
        if told is not None and told.limit is not None:
            self._connection.execute("DELETE FROM told WHERE meter = ?", (meter.key,))
            if told.limit < meter.capacity:
                until = self._now + arithmetic.BELIEVED_WINDOWS * meter.window_s
                self._connection.execute("INSERT INTO told VALUES (?, ?, ?)", (meter.key, told.limit, until))
        row = self._connection.execute(
            "SELECT capacity FROM told WHERE meter = ? AND until > ?", (meter.key, self._now)
        ).fetchone()
        return min(meter.capacity, row[0]) if row else meter.capacity

    def _share(self, meter: Meter) -> float:
        """Return the share of a meter's rate that throttling and the service leave."""
        return min(self._factor, self._limits[meter] / meter.capacity)

    def _load(self, meter: Meter) -> Gauge:
        if meter.window_s is None:
            row = self._connection.execute(
                "SELECT used FROM totals WHERE meter = ?", (meter.key_at(self._now),)
            ).fetchone()
            return Gauge(level=0.0, at=self._now, quanta={}, used=row[0] if row else 0)
        row = self._connection.execute(
            "SELECT level, at FROM buckets WHERE meter = ?", (meter.key,)
        ).fetchone()
        level, at = row or (arithmetic.burst(meter), self._now)
        quanta = dict(
            self._connection.execute(
                "SELECT number, amount FROM quanta WHERE meter = ? AND number >= ? ORDER BY number",
                (meter.key, arithmetic.first_quantum(meter, self._now)),
            )
        )
        gauge = Gauge(level=level, at=at, quanta=quanta, used=sum(quanta.values()))
        arithmetic.refill(meter, gauge, self._now, self._share(meter))
        return gauge

    def correct(self) -> None:
        """Count what others have taken, as far as the service says so."""
        for meter, told in self._told.items():
            if arithmetic.correct(meter, self._gauges[meter], told, self._now, self._limits[meter]):
                self._touched.add((meter, arithmetic.quantum(meter, self._now)))

    def wait(self, need: Need) -> tuple[float, Meter | None]:
        """Return the seconds until all meters have room for ``need``, and the meter that takes longest."""
        longest, binding = 0.0, None
        for meter, gauge in self._gauges.items():
            seconds = arithmetic.wait(meter, gauge, need.amount(meter.unit), self._now, self._share(meter))
            if seconds > longest:
                longest, binding = seconds, meter
        return longest, binding

    def may_come_free(self, meter: Meter, need: Need) -> bool:
        """Whether a total could still have room for ``need`` once the calls that are open are settled."""
        if meter.window_s is not None:
            return False
        (held,) = self._connection.execute(
            "SELECT coalesce(sum(amount), 0) FROM holds JOIN leases ON leases.id = holds.lease"
            " WHERE meter = ? AND expires > ?",
            (meter.key, self._now),
        ).fetchone()
        return bool(self._gauges[meter].used - held + need.amount(meter.unit) <= meter.capacity)

    def take(self, need: Need, lease: str) -> None:
        """Move a need into every meter."""
        for meter in self._gauges:
            amount = need.amount(meter.unit)
            self._move(meter, amount, self._now)
            if meter.window_s is None:
                self._connection.execute("INSERT INTO holds VALUES (?, ?, ?)", (meter.key, lease, amount))

    def seconds(self, needs: Sequence[Need]) -> float:
        """Return for how long the rate has to flow for ``needs``, by the meter that takes longest."""
        windows = (meter for meter in self._gauges if meter.window_s is not None)
        longest = (
            sum(need.amount(meter.unit) for need in needs) / (meter.rate * self._share(meter))
            for meter in windows
        )
        return max(arithmetic.LEAST_S, *longest, arithmetic.LEAST_S)

    def settle(self, settlement: Settlement) -> None:
        """Correct every meter by what became of a grant."""
        if settlement.late:
            for meter in self._gauges:
                if meter.window_s is not None:
                    self._move(meter, settlement.grant.need.amount(meter.unit), self._now)
            return
        for meter in self._gauges:
            change = _correction(meter, settlement)
            if change and meter.window_s is not None and meter.counts == "reserved" and change > 0:
                self._move(meter, change, self._now)
            elif change:
                self._move(meter, change, settlement.grant.at)

    def _move(self, meter: Meter, amount: int, at: float) -> None:
        gauge = self._gauges[meter]
        if meter.window_s is not None and arithmetic.quantum(meter, at) < arithmetic.first_quantum(
            meter, self._now
        ):
            return
        arithmetic.take(meter, gauge, amount, at)
        self._touched.add((meter, 0 if meter.window_s is None else arithmetic.quantum(meter, at)))

    def save(self) -> None:
        """Write what changed and forget what has left its window."""
        for meter in {meter for meter, _ in self._touched}:
            gauge = self._gauges[meter]
            if meter.window_s is None:
                self._connection.execute(
                    "REPLACE INTO totals VALUES (?, ?)", (meter.key_at(self._now), gauge.used)
                )
                continue
            self._connection.execute(
                "REPLACE INTO buckets VALUES (?, ?, ?)", (meter.key, gauge.level, gauge.at)
            )
            self._connection.execute(
                "DELETE FROM quanta WHERE meter = ? AND number < ?",
                (meter.key, arithmetic.first_quantum(meter, self._now)),
            )
        self._connection.executemany(
            "REPLACE INTO quanta VALUES (?, ?, ?)",
            [
                (meter.key, number, self._gauges[meter].quanta[number])
                for meter, number in self._touched
                if meter.window_s is not None
            ],
        )

    def fullest(self) -> float:
        """Return the share of the fullest window that is taken."""
        windows = (meter for meter in self._gauges if meter.window_s is not None)
        return max((self._gauges[meter].used / meter.capacity for meter in windows), default=0.0)

    def used(self) -> dict[Meter, int]:
        """Return how much of each meter is taken."""
        return {meter: gauge.used for meter, gauge in self._gauges.items()}


def _correction(meter: Meter, settlement: Settlement) -> int:
    """Return what to add to a meter: never less than nothing where the service counts reservations."""
    grant: Grant = settlement.grant
    reserved = grant.need.amount(meter.unit)
    if not settlement.sent:
        return -reserved
    if meter.unit == "requests":
        return 0
    actual = settlement.tokens if meter.unit == "tokens" else settlement.micro_usd
    if actual is None:
        return 0
    change = actual - reserved
    lowers = meter.unit == "micro_usd" or meter.counts == "used"
    return change if lowers else max(0, change)
