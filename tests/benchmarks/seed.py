"""
Two thousand items of mixed size under limits of requests and tokens: the plain way against ours.

Each side has a simulator of its own, in a process of its own, with the same limits in a window of 12 s, a
fifth of the usual minute. Both see the same items. The plan takes its expected output from the replies to a
sample of the items, as somebody would who tries a prompt first; ``max_tokens`` is a little above the longest.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx

from airflow_provider_llmbatch.engine.items import Chunk, RunRef, Usage
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.observe.events import Fanout
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.engine.run import plan, run
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.tokens.price import Rates
from tests.benchmarks import work
from tests.benchmarks.naive import Fates, gather_all
from tests.benchmarks.processes import server

ITEMS, CHUNKS, SAMPLE = 2_000, 8, 100
WINDOW_S = 12.0
LIMITS = {"requests_per_minute": 450, "tokens_per_minute": 125_000}
#: Above the longest reply, so that none is cut.
MAX_TOKENS = 90
#: US dollars per million tokens.
PRICE = {"input": "0.15", "output": "0.60"}
SERVER = (
    *("--rpm", LIMITS["requests_per_minute"], "--tpm", LIMITS["tokens_per_minute"], "--window", WINDOW_S),
    *("--latency", 0.4, "--count-tokens", "o200k"),
)

Costs = Mapping[int, float]


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Return errors, refusals, time, latency and cost against the plan of both sides."""
    items = 400 if quick else ITEMS
    with tempfile.TemporaryDirectory(prefix="llmbatch-bench-") as name:
        folder = Path(name)
        source = folder / "items.jsonl"
        with open(source, "wb") as file:
            for index in range(items):
                row = {"id": f"m{index}", "vars": {"text": work.text(index, _words(index))}}
                file.write(json.dumps(row).encode() + b"\n")
        chunks, planned = _planned(source, folder, items)
        with server("", *SERVER) as url:
            naive = _naive(url, items, chunks, planned)
        with server("", *SERVER) as url:
            ours = _ours(url, source, folder, chunks, planned)
    return {"seed": {"items": items, "window_s": WINDOW_S, **LIMITS, "naive": naive, "ours": ours}}


def _words(index: int) -> int:
    """Return the length of an item's text: seven in ten short, some of 200 words, a few of 600."""
    place = index * 37 % 100
    return 40 if place < 70 else 200 if place < 95 else 600


def _job(source: Path, url: str, results_path: Path, **further: Any) -> Job:
    extra = {
        **LIMITS,
        "window_s": WINDOW_S,
        "arrival_slack": 0.3,
        "burst_seconds": 1,
        "prices": {work.MODEL: PRICE},
    }
    params = {"temperature": 0, "max_tokens": MAX_TOKENS}
    return work.job(source, url, results_path, extra=extra, params=params, output_type=None, **further)


def _planned(source: Path, folder: Path, items: int) -> tuple[Sequence[Chunk], Costs]:
    """Cut the items into chunks, and price each with the mean output of a sample."""
    job = _job(source, "http://nobody.invalid/v1", folder / "plan")
    drawn = plan(job, token_budget=1, max_chunks=CHUNKS, strategy="balanced", note=_quiet)
    with server("", "--rpm", 10**6, "--tpm", 10**9, "--latency", 0.01, "--count-tokens", "o200k") as url:
        sample = asyncio.run(gather_all(url, list(_bodies(0, min(SAMPLE, items)))))
    mean = statistics.mean(completion for _, _, completion in sample.answered.values())
    costs = {c.number: _usd([(c.prompt_tokens, round(mean * c.items))]) for c in drawn.chunks}
    return drawn.chunks, costs


def _naive(url: str, items: int, chunks: Sequence[Chunk], planned: Costs) -> dict[str, Any]:
    fates: Fates = asyncio.run(gather_all(url, list(_bodies(0, items))))
    by_chunk = {
        chunk.number: _usd(
            fates.answered[index][1:] for index in range(chunk.start, chunk.stop) if index in fates.answered
        )
        for chunk in chunks
    }
    seconds = [took for took, _, _ in fates.answered.values()]
    return {**_account(url, items, len(fates.failed), fates.seconds, seconds), **_spread(by_chunk, planned)}


def _ours(url: str, source: Path, folder: Path, chunks: Sequence[Chunk], planned: Costs) -> dict[str, Any]:
    job = _job(source, url, folder / "results")
    manifests = asyncio.run(_dispatched(job, chunks, folder / "state.db"))
    rows = list(results(open_folder(job.result_path, read_only=True)))
    failed = sum(not row.outcome.is_good for row in rows)
    seconds = max(m.ended_at for m in manifests) - min(m.started_at for m in manifests)
    by_chunk = {manifest.chunk: float(manifest.cost.usd) for manifest in manifests}
    calls = [row.call_ms / 1000 for row in rows]
    return {
        **_account(url, len(rows), failed, seconds, calls),
        **_spread(by_chunk, planned),
        "use": round(sum(m.limits["granted_tokens"] for m in manifests) / _allowed(seconds), 3),
    }


async def _dispatched(job: Job, chunks: Sequence[Chunk], state_file: Path) -> Any:
    """Dispatch all chunks at the same time, as mapped tasks do: they share limits, not processes."""
    state = SqliteState(state_file)
    try:
        return await asyncio.gather(*(_one(job, chunk, state) for chunk in chunks))
    finally:
        await state.close()


async def _one(job: Job, chunk: Chunk, state: SqliteState) -> Any:
    mine = replace(job, run=RunRef(dag="bench", run="r", task="dispatch", map_index=chunk.number))
    return await run(mine, chunk, state=state, observe=Fanout(()), note=_quiet)


def _bodies(start: int, stop: int) -> Iterator[bytes]:
    """Yield the bodies of the items as the engine sends them."""
    for index in range(start, stop):
        messages = [
            {"role": "system", "content": work.SYSTEM},
            {"role": "user", "content": work.USER.replace("{{ text }}", work.text(index, _words(index)))},
        ]
        body = {"model": work.MODEL, "messages": messages, "temperature": 0, "max_tokens": MAX_TOKENS}
        yield json.dumps(body).encode()


def _account(url: str, items: int, failed: int, seconds: float, took: Sequence[float]) -> dict[str, Any]:
    statuses = httpx.get(f"{url.removesuffix('/v1')}/_sim/stats").json()["by_status"]
    ranked = sorted(took)
    return {
        "errors_percent": round(100 * failed / items, 2),
        "status_429": statuses.get("429", 0),
        "seconds": round(seconds, 1),
        "latency_p50_s": round(ranked[len(ranked) // 2], 2),
        "latency_p95_s": round(ranked[int(len(ranked) * 0.95)], 2),
    }


def _spread(costs: Costs, planned: Costs) -> dict[str, Any]:
    """Return how far the cost of the batches lies from their plan, in per cent."""
    off = [100 * (costs[number] / planned[number] - 1) for number in planned]
    return {
        "cost_off_plan_percent": [round(min(off), 2), round(max(off), 2)],
        "cost_off_plan_most_percent": round(max(map(abs, off)), 2),
    }


def _usd(tokens: Iterable[Sequence[int]]) -> float:
    rates = Rates(Decimal(PRICE["input"]), Decimal(PRICE["input"]), Decimal(PRICE["output"]))
    usage = sum((Usage(prompt=prompt, completion=completion) for prompt, completion in tokens), Usage())
    return float(rates.cost(usage).usd)


def _allowed(seconds: float) -> float:
    return LIMITS["tokens_per_minute"] * max(1.0, seconds / WINDOW_S)


def _quiet(_: str) -> None:
    """Nobody reads the notes of a benchmark."""
