"""One run over a state given by its address: ``python -m tests.benchmarks.redis_runs --state … --url …``."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import tempfile
import time
from pathlib import Path

from airflow_provider_llmbatch.engine.items import RunRef
from airflow_provider_llmbatch.engine.observe.events import Fanout
from airflow_provider_llmbatch.engine.observe.log import LogObserver
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from tests.benchmarks import work

CONCURRENCY = 200


async def _run(folder: Path, url: str, address: str, count: int) -> float:
    source = work.write_items(folder / "items.jsonl", count)
    extra = {**work.WIDE, "max_in_flight": CONCURRENCY}
    asked = work.job(source, url, folder / "results", extra=extra, run=RunRef(dag="bench", run=folder.name))
    state = SqliteState(folder / "state.db") if address == "sqlite" else RedisState(connect(address))
    log, chunk = logging.getLogger("bench"), whole(asked)
    try:
        began = time.perf_counter()
        observe = Fanout([LogObserver(log, total=count)])
        manifest = await run(asked, chunk, state=state, observe=observe, note=log.info)
        seconds = time.perf_counter() - began
    finally:
        await state.close()
    if manifest.good != count:
        raise SystemExit(f"not all items are ok: {manifest.counts}")
    return count / seconds


def main() -> None:
    """Run once and print the items per second."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--state", required=True, help="sqlite, or the address of a Redis")
    parser.add_argument("--items", type=int, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmbatch-bench-") as name:
        rps = asyncio.run(_run(Path(name), given.url, given.state, given.items))
    print(json.dumps({"rps": rps}))


if __name__ == "__main__":
    main()
