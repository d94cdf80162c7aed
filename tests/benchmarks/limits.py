"""
Sixteen worker processes under one set of limits in Redis, judged by the arrival log of the service.

Windows are those of a minute limit, 60 s; each worker has the same items of mixed size and a key of its own
on the one account, so that the log knows who sent what. Both ways of counting are measured, one after the
other, and the worse figure of each kind is told.

``over``
    windows at the service that hold more requests or tokens than the limit
``use``
    share of the binding limit that was used, from the second full window to the last
``fairness``
    most tokens of a worker against the fewest, until the first of them runs out of work
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from airflow_provider_llmbatch.simulator.arrivals import Arrival, read_arrivals, use_of_limit, windows_over
from tests.benchmarks.processes import server
from tests.services import workers
from tests.services.redis_server import BINARY, running

WORKERS = 16
WINDOW_S, QUICK_WINDOW_S = 60.0, 6.0
#: Full windows that the work takes.
WINDOWS = 3.2
#: Requests and tokens a second that the limits come to; tokens bind.
REQUESTS_PER_S, TOKENS_PER_S = 22, 3_000
MAX_TOKENS = 60
#: Words of the items, in turn.
SIZES = (5, 20, 120, 400)
#: Items a second that the limit of tokens lets through, by what the service counts.
ITEMS_PER_S = {"reserved": 14.0, "used": 18.5}


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Return the worse figures of both ways of counting, and those of each."""
    if BINARY is None:
        print("limits: skipped, redis-server is not installed", flush=True)
        return {"limits": {"skipped": "redis-server is not installed"}}
    window_s = QUICK_WINDOW_S if quick else WINDOW_S
    found = {counts: _measured(counts, window_s) for counts in ITEMS_PER_S}
    return {
        "limits": {
            "over": max(one["over"] for one in found.values()),
            "use": min(one["use"] for one in found.values()),
            "fairness": max(one["fairness"] for one in found.values()),
            **found,
        }
    }


def _measured(counts: str, window_s: float) -> dict[str, float]:
    rpm, tpm = round(REQUESTS_PER_S * window_s), round(TOKENS_PER_S * window_s)
    items = round(ITEMS_PER_S[counts] * WINDOWS * window_s / WORKERS)
    keys = {f"w{number}": f"sk-worker-{number:04d}" for number in range(WORKERS)}
    told = ("--rpm", rpm, "--tpm", tpm, "--window", window_s, "--counts", counts, "--latency", 0.3)
    known = ",".join(f"{name}@team={key}" for name, key in keys.items())
    with tempfile.TemporaryDirectory(prefix="llmbatch-bench-") as name:
        folder = Path(name)
        with (
            running(folder / "redis") as redis,
            server("", *told, "--count-tokens", "o200k", "--output-words", 10, "--keys", known) as url,
        ):
            started = [
                workers.start(
                    name=worker,
                    url=url,
                    state=redis.url,
                    results=str(folder / worker),
                    items=items,
                    sizes=SIZES,
                    key=key,
                    max_tokens=MAX_TOKENS,
                    extra=_extra(rpm, tpm, window_s, counts),
                    hold=True,
                )
                for worker, key in keys.items()
            ]
            workers.release(started)
            manifests = [workers.manifest(one, timeout=8 * window_s + 120) for one in started]
            seen = read_arrivals(httpx.get(url.removesuffix("/v1") + "/_sim/arrivals", timeout=60).json())
    return _judged(seen, manifests, window_s, rpm, tpm)


def _extra(rpm: int, tpm: int, window_s: float, counts: str) -> dict[str, Any]:
    return {
        "account": "team",
        "requests_per_minute": rpm,
        "tokens_per_minute": tpm,
        "window_s": window_s,
        # In proportion to the window, as the defaults are to a minute.
        "arrival_slack": max(0.25, window_s / 30.0),
        "burst_seconds": window_s / 12.0,
        "counts": counts,
        "max_in_flight": 200,
        "encoding": "o200k_base",
    }


def _judged(
    seen: Sequence[Arrival], manifests: Sequence[Mapping[str, Any]], window_s: float, rpm: int, tpm: int
) -> dict[str, float]:
    admitted = [a for a in seen if a.admitted]
    requests = [(a.time, 1) for a in admitted]
    tokens = [(a.time, a.tokens) for a in admitted]
    uses = use_of_limit(requests, window_s, rpm), use_of_limit(tokens, window_s, tpm)
    return {
        "over": windows_over(requests, window_s, rpm) + windows_over(tokens, window_s, tpm),
        "use": round(max(uses), 4),
        "fairness": round(_fairness(admitted), 3),
        "refused": sum(not a.admitted for a in seen),
        "failed": sum(sum(n for outcome, n in m["counts"].items() if outcome != "ok") for m in manifests),
        "late_arrivals": sum(m["limits"].get("late_arrivals", 0) for m in manifests),
        "windows": round((tokens[-1][0] - tokens[0][0]) / window_s, 2),
    }


def _fairness(admitted: Sequence[Arrival]) -> float:
    """Compare what workers sent until the first of them was done; who had not begun by then sent nothing."""
    ended = {arrival.credential: arrival.time for arrival in admitted}
    sent, first = dict.fromkeys(ended, 0), min(ended.values())
    for arrival in admitted:
        if arrival.time <= first:
            sent[arrival.credential] += arrival.tokens
    return max(sent.values()) / max(1, min(sent.values()))
