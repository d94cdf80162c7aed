"""The figures of ``/_sim/stats``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from airflow_provider_llmbatch.simulator.arrivals import Arrival, doubles, max_in_window, windows_over


def totals(arrivals: Sequence[Arrival], *, rpm: int, tpm: int, window_s: float) -> dict[str, Any]:
    """
    Return totals and the fullest windows; ``over`` counts windows above the limits given.

    ``windows_admitted`` judges the simulator, ``windows_arrived`` judges its clients.
    """
    admitted = [arrival for arrival in arrivals if arrival.admitted]
    return {
        "limits": {"rpm": rpm, "tpm": tpm, "window_s": window_s},
        "arrivals": len(arrivals),
        "admitted": len(admitted),
        "by_status": _counted(str(arrival.status) for arrival in arrivals),
        "by_credential": _counted(arrival.credential for arrival in arrivals),
        "tokens_admitted": sum(arrival.tokens for arrival in admitted),
        "max_in_flight": max((arrival.in_flight for arrival in arrivals), default=0),
        "doubles": len(doubles(arrivals)),
        "windows_admitted": _windows(admitted, rpm, tpm, window_s),
        "windows_arrived": _windows(arrivals, rpm, tpm, window_s),
    }


def _windows(arrivals: Sequence[Arrival], rpm: int, tpm: int, window_s: float) -> dict[str, int]:
    """Return the fullest windows of any account, and how many windows are over in all of them."""
    found = {"max_requests": 0, "max_tokens": 0, "requests_over": 0, "tokens_over": 0}
    for account in {arrival.account for arrival in arrivals}:
        mine = [arrival for arrival in arrivals if arrival.account == account]
        requests = [(arrival.time, 1) for arrival in mine]
        tokens = [(arrival.time, arrival.tokens) for arrival in mine]
        found["max_requests"] = max(found["max_requests"], max_in_window(requests, window_s))
        found["max_tokens"] = max(found["max_tokens"], max_in_window(tokens, window_s))
        found["requests_over"] += windows_over(requests, window_s, rpm)
        found["tokens_over"] += windows_over(tokens, window_s, tpm)
    return found


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))
