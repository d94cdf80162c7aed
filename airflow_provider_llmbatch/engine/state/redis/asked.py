"""What a take asks, in the form that the scripts read: whole numbers, -1 for what is not known."""

from __future__ import annotations

from typing import Any

from airflow_provider_llmbatch.engine.state import arithmetic
from airflow_provider_llmbatch.engine.state.protocols import QUANTA_PER_WINDOW, Meter, Scope, Settlement, Told

MICRO = 1_000_000
_UNITS = {"requests": 1, "tokens": 2, "micro_usd": 3}
#: Seconds of the rate that one turn takes at most while others wait.
TURN_S = 0.25
#: A window longer than this starts evenly used after a loss of data, and not all at its end. Seconds.
SPREAD_ABOVE_S = 600.0


def rules_for(scope: Scope) -> dict[str, float]:
    """Return the constants of :mod:`..arithmetic` as they are for a scope."""
    return {
        "turn_us": round(TURN_S * MICRO),
        "window_us": round(scope.window_s * MICRO),
        "steepness": arithmetic.FACTOR_STEEPNESS,
        "forgotten": arithmetic.FORGOTTEN,
        "passed_us": round(arithmetic.PASSED_WINDOWS * scope.window_s * MICRO),
        "least_us": round(arithmetic.LEAST_S * MICRO),
        "believed": arithmetic.BELIEVED_WINDOWS,
    }


def meter_of(meter: Meter) -> dict[str, int]:
    """Return a meter's sizes, in microseconds and units."""
    window_s = meter.window_s or 0.0
    # Whole microseconds, rounded up, so that no rounding shortens what is kept.
    quantum = -(-round(window_s * MICRO) // QUANTA_PER_WINDOW)
    return {
        "unit": _UNITS[meter.unit],
        "cap": meter.capacity,
        "window": round(window_s * MICRO),
        "quantum": quantum,
        "kept": round((window_s + meter.slack_s) * MICRO) + quantum,
        "burst": round(meter.burst_s * MICRO),
        "used": int(meter.counts == "used"),
        "spread": QUANTA_PER_WINDOW if window_s > SPREAD_ABOVE_S else 1,
    }


def settlement_of(one: Settlement) -> list[Any]:
    """Return what became of a grant."""
    tokens = -1 if one.tokens is None else one.tokens
    micro_usd = -1 if one.micro_usd is None else one.micro_usd
    return [one.grant.id, tokens, micro_usd, int(one.sent), int(one.late)]


def told_of(told: Told | None) -> dict[str, list[int]]:
    """Return what the service has said about a meter."""
    if told is None:
        return {}
    return {"told": [-1 if amount is None else amount for amount in (told.limit, told.remaining)]}
