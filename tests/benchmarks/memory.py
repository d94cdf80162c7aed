"""
How memory grows with the number of items: ten thousand against a million, replies made in this process.

``python -m tests.benchmarks.memory --items N --folder PATH`` dispatches a source that is there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from airflow_provider_llmbatch.simulator.lean import completion
from tests.benchmarks import work
from tests.benchmarks.machine import peak_mb
from tests.benchmarks.processes import measured

FEW, MANY = 10_000, 1_000_000
#: Seconds that a million items may take.
LIMIT_S = 900.0
WORDS = 8


class AtOnce(httpx.AsyncBaseTransport):
    """Answers every call with the same completion, without a socket."""

    def __init__(self) -> None:
        self._body = completion('{"label": "ok", "score": 0.5}')

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer on the loop's next turn, as the fastest of services would."""
        await asyncio.sleep(0)
        return httpx.Response(200, content=self._body, request=request)


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Return by how much the peak of resident memory grows, in MiB, and the pace without a network."""
    few, many = (1_000, 6_000) if quick else (FEW, MANY)
    small, large = _peak(few), _peak(many)
    return {
        "memory_growth_mb": round(large["peak_mb"] - small["peak_mb"], 1),
        "memory_mb": {str(few): round(small["peak_mb"], 1), str(many): round(large["peak_mb"], 1)},
        "in_process_rps": round(many / large["s"]),
    }


def _peak(items: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="llmbatch-bench-") as name:
        work.write_items(Path(name) / "items.jsonl", items, words=WORDS)
        return measured("memory", "--items", items, "--folder", name, limit_s=LIMIT_S)


def main() -> None:
    """Dispatch the items of a folder and print the peak of memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    asked = work.job(
        given.folder / "items.jsonl",
        "http://in-process.invalid/v1",
        given.folder / "results",
        extra={**work.WIDE, "max_in_flight": 64},
        transport=lambda _: AtOnce(),
    )
    began = time.perf_counter()
    manifest = asyncio.run(work.dispatched(asked, given.folder / "state.db"))
    if manifest.good != given.items:
        raise SystemExit(f"not all items are ok: {manifest.counts}")
    print(json.dumps({"peak_mb": peak_mb(), "s": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
