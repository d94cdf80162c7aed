"""What the scripts are asked, in their own units: microseconds and whole amounts."""

from __future__ import annotations

from typing import Any

from airflow_provider_llmbatch.engine.state import arithmetic
from airflow_provider_llmbatch.engine.state.protocols import QUANTA_PER_WINDOW, Meter, Scope, Settlement, Told
from airflow_provider_llmbatch.engine.state.redis.keys import Keys

_MICRO = 1_000_000
#: Seconds of the rate that one turn takes at most while others wait.
TURN_S = 0.25
_UNITS = {"requests": 1, "tokens": 2, "micro_usd": 3}
#: A window longer than this starts evenly used after a loss of data, and not all at its end. Seconds.
SPREAD_ABOVE_S = 600.0


def key_names(scope: Scope, now: float) -> list[str]:
    """Return the keys of a take; budgets are those of the period that ``now`` (Unix seconds) falls into."""
    names = Keys(scope.domain)
    return [
        names.epoch,
        names.fence(scope.owner),
        names.throttle(scope.throttle),
        names.leases(scope.throttle),
        names.lease_data(scope.throttle, scope.owner),
        names.queue(scope.queue_key),
        names.turns(scope.queue_key),
        *(names.meter(meter.key_at(now)) for meter in scope.meters),
        *(names.open(meter.key_at(now)) for meter in scope.meters),
        *(names.gate(gate.name) for gate in scope.gates),
        names.gates,
    ]


def rules(scope: Scope) -> dict[str, Any]:
    """Return who takes and by which rules, as the script takes it."""
    return {
        "owner": scope.owner,
        "fence": scope.fence,
        "throttle": scope.throttle,
        "waiter": scope.waiter_key,
        "priority": scope.priority,
        "max_in_flight": scope.max_in_flight,
        "lease_us": round(scope.lease_s * _MICRO),
        "turn_us": round(TURN_S * _MICRO),
        "window_us": round(scope.window_s * _MICRO),
        "steepness": arithmetic.FACTOR_STEEPNESS,
        "forgotten": arithmetic.FORGOTTEN,
        "passed_us": round(arithmetic.PASSED_WINDOWS * scope.window_s * _MICRO),
        "least_us": round(arithmetic.LEAST_S * _MICRO),
        "believed": arithmetic.BELIEVED_WINDOWS,
    }


def meter_sizes(meter: Meter) -> dict[str, int]:
    """Return a meter as scripts take it."""
    window_s = meter.window_s or 0.0
    # Whole microseconds, rounded up, so that no rounding shortens what is kept.
    quantum = -(-round(window_s * _MICRO) // QUANTA_PER_WINDOW)
    return {
        "unit": _UNITS[meter.unit],
        "cap": meter.capacity,
        "window": round(window_s * _MICRO),
        "quantum": quantum,
        "kept": round((window_s + meter.slack_s) * _MICRO) + quantum,
        "burst": round(meter.burst_s * _MICRO),
        "used": int(meter.counts == "used"),
        "spread": QUANTA_PER_WINDOW if window_s > SPREAD_ABOVE_S else 1,
    }


def settlement(one: Settlement) -> list[Any]:
    """Return a settlement as scripts take it."""
    tokens = -1 if one.tokens is None else one.tokens
    micro_usd = -1 if one.micro_usd is None else one.micro_usd
    return [one.grant.id, tokens, micro_usd, int(one.sent), int(one.late)]


def told_of(told: Told | None) -> dict[str, list[int]]:
    """Return what the service said about a meter as scripts take it."""
    if told is None:
        return {}
    return {"told": [-1 if amount is None else amount for amount in (told.limit, told.remaining)]}
