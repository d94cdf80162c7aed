"""
Who is let in: requests and tokens per account in sliding windows.

No half-open stretch ``[t, t + window)`` ever holds more admitted requests or tokens than the limit. With a
burst factor the same holds for every stretch of one quantum and ``limit * quantum / window * burst``, except
that an empty quantum always admits one request, so that none is too large for a quantum yet fits the window.

Pure: the time is passed in and never goes back.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

Kind = Literal["requests", "tokens"]


class SlidingWindow:
    """
    Costs of the last ``width_s`` seconds against a limit.

    :param limit: what the window holds at most.
    :param width_s: its length.
    :param lone_passes: whether an empty window admits a cost above the limit.
    """

    def __init__(self, limit: int, width_s: float, *, lone_passes: bool = False) -> None:
        self.limit = limit
        self.width_s = width_s
        self._lone_passes = lone_passes
        self._entries: deque[tuple[float, int]] = deque()
        self._used = 0

    def __repr__(self) -> str:
        """Return the load as last seen."""
        return f"<SlidingWindow {self._used}/{self.limit} in {self.width_s:g} s>"

    def used(self, now: float) -> int:
        """Return what the window that ends at ``now`` holds."""
        while self._entries and self._entries[0][0] + self.width_s <= now:
            self._used -= self._entries.popleft()[1]
        return self._used

    def wait(self, cost: int, now: float) -> float:
        """Return the seconds until ``cost`` fits; 0 when it fits now, ``inf`` when it never will."""
        spare = self.limit - self.used(now)
        if cost <= spare or (self._lone_passes and not self._entries):
            return 0.0
        for at, freed in self._entries:
            spare += freed
            if cost <= spare:
                return at + self.width_s - now
        return self.empty_in(now) if self._lone_passes else math.inf

    def take(self, cost: int, now: float) -> None:
        """Let ``cost`` count for one width from ``now``."""
        self._entries.append((now, cost))
        self._used += cost

    def empty_in(self, now: float) -> float:
        """Return the seconds until nothing counts any more."""
        self.used(now)
        return self._entries[-1][0] + self.width_s - now if self._entries else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request was not admitted."""

    kind: Kind
    limit: int
    used: int
    requested: int
    #: seconds after which the same request would be admitted; None when it never would
    wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How an account stands with one of its limits."""

    limit: int
    remaining: int
    #: seconds until the limit is whole again
    reset_s: float


class Meter:
    """One limit of one account: the window, and the quanta inside it when they are enforced."""

    def __init__(self, limit: int, window_s: float, quantum_s: float, burst: float | None) -> None:
        self._window = SlidingWindow(limit, window_s)
        self._share = None if burst is None else burst * quantum_s / window_s
        self._quantum = SlidingWindow(limit, quantum_s, lone_passes=True)
        self.change(limit)

    def change(self, limit: int) -> None:
        """Set another limit; what was taken still counts."""
        self._window.limit = limit
        self._quantum.limit = limit if self._share is None else max(1, math.floor(limit * self._share))

    def wait(self, cost: int, now: float) -> float:
        """Return the seconds until ``cost`` fits, ``inf`` when it never will."""
        wait = self._window.wait(cost, now)
        return wait if self._share is None else max(wait, self._quantum.wait(cost, now))

    def take(self, cost: int, now: float) -> None:
        """Let ``cost`` count."""
        self._window.take(cost, now)
        if self._share is not None:
            self._quantum.take(cost, now)

    def standing(self, now: float) -> Standing:
        """Return limit, rest and reset as the headers tell them."""
        return Standing(
            limit=self._window.limit,
            remaining=max(0, self._window.limit - self._window.used(now)),
            reset_s=self._window.empty_in(now),
        )

    def refusal(self, kind: Kind, cost: int, wait_s: float, now: float) -> Refusal:
        """Put a refused ``cost`` into words."""
        never = math.isinf(wait_s)
        return Refusal(
            kind=kind,
            limit=self._window.limit,
            used=self._window.used(now),
            requested=cost,
            wait_s=None if never else wait_s,
        )


class Admission:
    """
    Both limits of every account.

    :param rpm: requests that a window admits.
    :param tpm: tokens that a window admits.
    :param window_s: length of the window.
    :param quantum_s: length of a quantum.
    :param burst: how many times its even share a quantum admits; None leaves quanta open.
    :param failed_counts: whether a refused request takes from the request limit.
    """

    def __init__(
        self,
        *,
        rpm: int,
        tpm: int,
        window_s: float,
        quantum_s: float = 1.0,
        burst: float | None = None,
        failed_counts: bool = False,
    ) -> None:
        self.limits: dict[Kind, int] = {"requests": rpm, "tokens": tpm}
        self._shape = (window_s, quantum_s, burst)
        self._failed_counts = failed_counts
        self._accounts: dict[str, dict[Kind, Meter]] = {}

    def take(self, account: str, tokens: int, now: float) -> Refusal | None:
        """Admit a request of ``tokens``, or say why not."""
        meters = self._meters(account)
        costs: dict[Kind, int] = {"requests": 1, "tokens": tokens}
        if all(meters[kind].wait(cost, now) <= 0 for kind, cost in costs.items()):
            for kind, cost in costs.items():
                meters[kind].take(cost, now)
            return None
        # A refused request that counts lengthens the wait for its own retry, so it is taken first.
        if self._failed_counts:
            meters["requests"].take(1, now)
        waits = {kind: meters[kind].wait(cost, now) for kind, cost in costs.items()}
        longest = max(waits, key=lambda kind: waits[kind])
        return meters[longest].refusal(longest, costs[longest], waits[longest], now)

    def standing(self, account: str, now: float) -> dict[Kind, Standing]:
        """Return how ``account`` stands with its limits."""
        return {kind: meter.standing(now) for kind, meter in self._meters(account).items()}

    def change(self, *, rpm: int | None = None, tpm: int | None = None) -> None:
        """Set other limits for all accounts, from now on."""
        changes: dict[Kind, int | None] = {"requests": rpm, "tokens": tpm}
        for kind, limit in changes.items():
            if limit is None:
                continue
            self.limits[kind] = limit
            for meters in self._accounts.values():
                meters[kind].change(limit)

    def reset(self) -> None:
        """Forget what was taken; the limits stay."""
        self._accounts.clear()

    def _meters(self, account: str) -> dict[Kind, Meter]:
        if account not in self._accounts:
            self._accounts[account] = {
                kind: Meter(limit, *self._shape) for kind, limit in self.limits.items()
            }
        return self._accounts[account]
