"""Numbers as people read them. A part is never shown as all or nothing, and a lower bound never as a sum."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

UNKNOWN = "unknown"


def count(number: int) -> str:
    """Return ``12,345``."""
    return f"{number:,}"


def share(part: float, whole: float) -> str:
    """Return ``12.4%``; not ``0%`` of something, nor ``100%`` of less than all."""
    if whole <= 0:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "<0.1%"
    if 99.9 < percent < 100:
        return ">99.9%"
    return f"{percent:.1f}%" if 0 < percent < 100 else f"{percent:.0f}%"


def money(usd: Decimal | None, *, unpriced: bool = False) -> str:
    """
    Return ``$1.23``, with more digits the smaller the sum is.

    :param unpriced: whether a part of it has no known price; the rest is then a lower bound.
    """
    if usd is None:
        return UNKNOWN
    if unpriced:
        return f"at least {money(usd)}" if usd else "unpriced"
    if 0 < usd < Decimal("0.000001"):
        return "<$0.000001"
    digits = 2 if usd == 0 or usd >= 10 else 4 if usd >= Decimal("0.01") else 6
    return f"${usd:,.{digits}f}"


def duration(seconds: float) -> str:
    """Return ``850 ms``, ``12.3 s``, ``3 min 05 s``, ``2 h 05 min`` or ``1 d 02 h``."""
    if seconds < 0.9995:
        return f"{1000 * max(seconds, 0):.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 24 else f"{hours // 24} d {hours % 24:02d} h"


def milliseconds(ms: float) -> str:
    """Return a latency: ``12 ms``, ``1.24 s``, ``1 min 05 s``."""
    return f"{ms / 1000:.2f} s" if 1000 <= ms < 10_000 else duration(ms / 1000)


def difference(actual: float | Decimal, planned: float | Decimal) -> str:
    """Return how far ``actual`` is from ``planned``: ``+12.4%``, ``−5%``."""
    if not planned:
        return "–"
    percent = 100 * (float(actual) / float(planned) - 1)
    text = f"{abs(percent):.1f}".removesuffix(".0")
    return "±0%" if text == "0" else f"{'+' if percent > 0 else '−'}{text}%"


def span(low: float, high: float, show: Callable[[float], str]) -> str:
    """Return ``0.9 – 1.4 s``, or one value when both read the same."""
    least, most = show(low), show(high)
    if least == most:
        return most
    number, _, unit = least.rpartition(" ")
    return f"{number if number and most.endswith(f' {unit}') else least} – {most}"


def moment(unix: float) -> str:
    """Return ``2026-05-04 12:30:05 UTC``."""
    return f"{datetime.fromtimestamp(unix, UTC):%Y-%m-%d %H:%M:%S} UTC" if unix else UNKNOWN
