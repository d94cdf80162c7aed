"""
How long it takes to plan a hundred thousand items: read, rendered, counted, cut and hashed.

``python -m tests.benchmarks.planning --items N --folder PATH`` plans a source that is there.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.run import plan
from tests.benchmarks import work
from tests.benchmarks.machine import peak_mb
from tests.benchmarks.processes import measured

ITEMS = 100_000


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Return the seconds of a plan, for items of about 120 tokens."""
    items = 5_000 if quick else ITEMS
    with tempfile.TemporaryDirectory(prefix="llmbatch-bench-") as name:
        work.write_items(Path(name) / "items.jsonl", items)
        figures = measured("planning", "--items", items, "--folder", name)
    return {
        f"plan_{items // 1000}k_s": round(figures["s"], 2),
        "plan_peak_mb": round(figures["peak_mb"], 1),
    }


def main() -> None:
    """Plan the items of a folder and print how long that took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    source = given.folder / "items.jsonl"
    asked = work.job(source, "http://nobody.invalid/v1", given.folder / "results", extra=work.WIDE)
    began = time.perf_counter()
    drawn = plan(asked, token_budget=500_000, max_chunks=64, strategy="balanced", note=print)
    seconds = time.perf_counter() - began
    if drawn.items != given.items:
        raise SystemExit(f"only {drawn.items} items were planned")
    print(json.dumps({"s": seconds, "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()
