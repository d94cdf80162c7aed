"""
Items per second: the whole way of a run beside peers that only send, against the same server in the same run.

The server is the lean simulator in a process of its own, 50 ms for each call. Each contender has a process of
its own as well, and they take turns, so that a busy moment of the machine meets all of them.
"""

from __future__ import annotations

import statistics
from typing import Any

from tests.benchmarks.processes import measured, server

LATENCY_S = 0.05
CONCURRENCY = 200
MANY = 1_000
CONTENDERS = ("aiohttp", "ours", "httpx_aiohttp")
#: httpx's own pool is so slow at this concurrency that fewer items say enough.
SLOW = ("httpx",)


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Return items per second of all contenders, our processor time for an item, and both at 1,000 calls."""
    items, rounds = (3_000, 1) if quick else (16_000, 3)
    with server(".lean", "--latency", LATENCY_S) as url:
        at_200 = _compared(url, CONCURRENCY, items, rounds, CONTENDERS)
        at_200 |= _compared(url, CONCURRENCY, items // 8, 1, SLOW)
        at_1000 = _compared(url, MANY, items, 1, ("aiohttp", "ours"))
    return {
        "throughput": {name: round(figures["rps"]) for name, figures in at_200.items()},
        "throughput_ratio": round(at_200["ours"]["rps"] / at_200["aiohttp"]["rps"], 3),
        "cpu_ms_per_item": round(at_200["ours"]["cpu_ms"], 3),
        "throughput_1000": {name: round(figures["rps"]) for name, figures in at_1000.items()},
        "cpu_ms_per_item_1000": round(at_1000["ours"]["cpu_ms"], 3),
    }


def _compared(
    url: str, concurrency: int, items: int, rounds: int, names: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Let contenders take turns; return the middle of each one's figures."""
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            told = ("--url", url, "--concurrency", concurrency, "--items", items)
            seen[name].append(measured("contenders", name, *told))
    return {
        name: {key: statistics.median(one[key] for one in figures) for key in ("rps", "cpu_ms")}
        for name, figures in seen.items()
    }
