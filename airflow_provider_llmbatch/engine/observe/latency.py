"""
How long calls take, in a bounded amount of memory.

:class:`LatencyHistogram` answers "how long is the 95th percentile" within 2 %; :class:`LatencyMap` answers
"when was it slow". Both can be merged, so that workers and chunks keep their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from airflow_provider_llmbatch.errors import InputError

#: ratio of a bucket's bounds; a value is off by at most (RATIO - 1) / (RATIO + 1) < 2 %
RATIO = 1.04
#: the least and the largest latency that are told apart, in milliseconds (a day)
LEAST_MS = 0.01
LARGEST_MS = 86_400_000.0

_LOG_RATIO = math.log(RATIO)
_LOWEST_BUCKET = math.ceil(math.log(LEAST_MS) / _LOG_RATIO)
_HIGHEST_BUCKET = math.ceil(math.log(LARGEST_MS) / _LOG_RATIO)

#: most columns of a map; with more, two neighbours become one
COLUMNS = 60
#: rows of a map: powers of two milliseconds, from 2^LOWEST_ROW up
LOWEST_ROW = 4
HIGHEST_ROW = 20


class LatencyHistogram:
    """Counts of latencies in buckets whose width grows with the latency."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._max = 0.0

    def __len__(self) -> int:
        """Return how many latencies were counted."""
        return self._buckets.total()

    def add(self, ms: float) -> None:
        """Count a latency in milliseconds; what is no duration counts as the least."""
        ms = min(ms, LARGEST_MS) if ms > LEAST_MS else LEAST_MS
        self._buckets[math.ceil(math.log(ms) / _LOG_RATIO)] += 1
        self._max = max(self._max, ms)

    def merge(self, other: LatencyHistogram) -> None:
        """Count what ``other`` has counted as well."""
        self._buckets.update(other._buckets)
        self._max = max(self._max, other._max)

    def counts(self) -> dict[int, int]:
        """Return how many latencies fell into which bucket; :meth:`of` reads it."""
        return dict(self._buckets)

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> LatencyHistogram:
        """Return the histogram of counts that others may have added to."""
        histogram = cls()
        for bucket, count in counts.items():
            histogram._buckets[min(max(bucket, _LOWEST_BUCKET), _HIGHEST_BUCKET)] += count
        histogram._max = RATIO ** max(histogram._buckets, default=0)
        return histogram

    def quantile(self, share: float) -> float:
        """
        Return the latency in milliseconds that ``share`` of all do not exceed.

        :raises ValueError: when nothing was counted.
        """
        if not self._buckets:
            raise ValueError("No latency was counted, so there is no quantile.")
        rank = max(1, math.ceil(share * len(self)))
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                break
        # The point of the bucket that is off by the same ratio at both ends.
        return min(2 * RATIO**bucket / (1 + RATIO), self._max)

    def summary(self) -> dict[str, float]:
        """Return ``p50``, ``p95``, ``p99`` and ``max`` in milliseconds; nothing of nothing."""
        if not self._buckets:
            return {}
        quantiles = {f"p{percent}": self.quantile(percent / 100) for percent in (50, 95, 99)}
        return {name: round(ms, 1) for name, ms in {**quantiles, "max": self._max}.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values: at most one number for each of some 600 buckets."""
        counts = {str(bucket): self._buckets[bucket] for bucket in sorted(self._buckets)}
        return {"ratio": RATIO, "max": self._max, "buckets": counts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LatencyHistogram:
        """
        Read what :meth:`to_json` wrote.

        :raises InputError: for a foreign document.
        """
        try:
            if data["ratio"] != RATIO:
                raise InputError(f"Expected latencies with buckets of ratio {RATIO}, got {data['ratio']!r}.")
            histogram = cls()
            histogram._max = float(data["max"])
            for bucket, count in data["buckets"].items():
                histogram._buckets[min(max(int(bucket), _LOWEST_BUCKET), _HIGHEST_BUCKET)] += int(count)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"These are no latencies of ours: {error!r}.") from error
        return histogram


class LatencyMap:
    """
    Counts of calls by when they ended and how long they took, for a heat map.

    Columns are equal spans of time, a power of two seconds each, and get coarser as time goes on.
    """

    def __init__(self) -> None:
        self._step_s = 1
        self._counts: Counter[tuple[int, int]] = Counter()
        self._first = self._last = 0

    def add(self, at: float, ms: float) -> None:
        """Count a call that ended at ``at`` (Unix seconds) and took ``ms`` milliseconds."""
        row = int(min(ms, LARGEST_MS)).bit_length() if ms > 0 else 0
        self._put(int(at // self._step_s), min(max(row, LOWEST_ROW), HIGHEST_ROW), 1)

    def merge(self, other: LatencyMap) -> None:
        """Count what ``other`` has counted as well."""
        while self._step_s < other._step_s:
            self._coarsen()
        for (column, row), count in other._counts.items():
            self._put(column * other._step_s // self._step_s, row, count)

    def _put(self, column: int, row: int, count: int) -> None:
        if not self._counts:
            self._first = self._last = column
        while max(self._last, column) - min(self._first, column) >= COLUMNS:
            self._coarsen()
            column //= 2
        self._first, self._last = min(self._first, column), max(self._last, column)
        self._counts[column, row] += count

    def _coarsen(self) -> None:
        self._step_s *= 2
        self._first, self._last = self._first // 2, self._last // 2
        coarser: Counter[tuple[int, int]] = Counter()
        for (column, row), count in self._counts.items():
            coarser[column // 2, row] += count
        self._counts = coarser

    def to_json(self) -> dict[str, Any]:
        """
        Return the map as JSON values: ``start`` (Unix seconds), ``step_s``, ``below_ms`` and ``counts``.

        ``counts`` has a list for each column of time, with a number for each bound in ``below_ms``; the last
        bound also holds everything above it.
        """
        rows = [row for _, row in self._counts]
        bounds = range(min(rows), max(rows) + 1) if rows else range(0)
        columns = range(self._first, self._last + 1) if rows else range(0)
        return {
            "start": self._first * self._step_s,
            "step_s": self._step_s,
            "below_ms": [2**row for row in bounds],
            "counts": [[self._counts[column, row] for row in bounds] for column in columns],
        }
