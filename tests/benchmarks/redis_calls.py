"""
What we add to a call: the whole way with limits in Redis beside a client that only posts.

``python -m tests.benchmarks.redis_calls --url … --state redis://… --items 2500`` offers calls at a fixed rate
to a server that is already there, first as the bare client, then as ours, and prints quantiles. The calls of
ours go the way of a run: compose, slot, take, call, settle, check, row, ledger. They come at their times,
whether or not earlier ones are over, so that a wait is seen as a wait and not as fewer calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.assemble import assemble
from airflow_provider_llmbatch.engine.dispatch.course import Course
from airflow_provider_llmbatch.engine.items import Item
from airflow_provider_llmbatch.engine.job import ONLY, Job, tools
from airflow_provider_llmbatch.engine.observe.log import LogObserver
from airflow_provider_llmbatch.engine.results.answers import Answers
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.store import open_store
from airflow_provider_llmbatch.engine.run import whole
from airflow_provider_llmbatch.engine.state.patient import PatientState
from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
from tests.benchmarks import work
from tests.benchmarks.contenders import PEERS

#: Calls a second.
OFFERED = 500.0
MAX_IN_FLIGHT = 400
#: Share of the calls at the beginning that only warm up: connections, scripts, caches.
WARM_UP = 0.1

Call = Callable[[int], Awaitable[None]]


async def offered(call: Call, count: int) -> list[float]:
    """Begin ``count`` calls at the offered rate; return the milliseconds of each, from when it was due."""
    took = [0.0] * count
    begin = time.perf_counter() + 0.1

    async def one(number: int) -> None:
        await call(number)
        took[number] = (time.perf_counter() - begin - number / OFFERED) * 1000

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            pause = begin + number / OFFERED - time.perf_counter()
            # Late or not, whatever is ready gets a turn first.
            await asyncio.sleep(max(0.0, pause))
            group.create_task(one(number))
    return took


async def bare(url: str, count: int) -> list[float]:
    """Offer calls with the client that only posts."""
    bodies = list(work.bodies(count))
    async with PEERS["aiohttp"](f"{url}/chat/completions", MAX_IN_FLIGHT) as post:

        async def call(number: int) -> None:
            await post(bodies[number])

        return await offered(call, count)


async def ours(job: Job, count: int, address: str) -> list[float]:
    """Offer calls the way of a run, with limits in Redis."""
    log, state = logging.getLogger("bench"), RedisState(connect(address))
    observe = LogObserver(log, total=count)
    kit, folder, chunk = tools(job, log.info), open_folder(job.result_path), whole(job)
    patient = PatientState(state, observe, spent=lambda _: {}, now=job.clocks.now)
    fence = await patient.next(job.owner)
    answers = Answers(
        chunk=0,
        start=0,
        stop=count,
        fingerprint=job.fingerprint(chunk.sha),
        source=job.source.uri,
        prompt=job.prompt.ref,
        model=job.model,
        schema_digest=job.schema.digest,
        host="",
        occasion=None,
    )
    store = open_store(folder, answers, fence, "resume")
    items: Iterator[Any] = (row.item for row in job.source.rows())
    try:
        with closing(store):
            async with assemble(job, {ONLY: kit}, store, patient, fence, observe) as assembled:
                _, lanes, router, pursuer = assembled

                async def call(_: int) -> None:
                    item = next(items)
                    assert isinstance(item, Item)
                    course = router.start(item, ())
                    assert isinstance(course, Course)
                    result, book = await pursuer.bring_to_end(course)
                    store.add(result)
                    book()
                    if not result.outcome.is_good:
                        raise SystemExit(f"an item ended {result.outcome}: {result.error}")

                took = await offered(call, count)
                if late := sum(lane.limiter.late_arrivals for lane in lanes):
                    raise SystemExit(f"{late} requests left after their slack")
                return took
    finally:
        await state.close()


def quantiles(milliseconds: list[float]) -> dict[str, float]:
    """Return middle and 99th percentile of what came after the warm-up."""
    ranked = sorted(milliseconds[int(len(milliseconds) * WARM_UP) :])
    return {"p50": ranked[len(ranked) // 2], "p99": ranked[int(0.99 * (len(ranked) - 1))]}


def main() -> None:
    """Measure both once and print what ours adds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--items", type=int, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmbatch-bench-") as name:
        folder = Path(name)
        source = work.write_items(folder / "items.jsonl", given.items)
        extra = {**work.WIDE, "max_in_flight": MAX_IN_FLIGHT}
        job = work.job(source, given.url, folder / "results", extra=extra)
        alone = quantiles(asyncio.run(bare(given.url, given.items)))
        whole_way = quantiles(asyncio.run(ours(job, given.items, given.state)))
    print(json.dumps({"bare": alone, "added": {key: whole_way[key] - alone[key] for key in alone}}))


if __name__ == "__main__":
    main()
