"""
One contender against a server that is already there: ``python -m tests.benchmarks.contenders NAME …``.

``ours`` goes the whole way: read, render, count, take from the limits, call, check, write row and ledger,
compact. The peers only post ready bodies and parse what comes back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import httpx
from httpx_aiohttp import HttpxAiohttpClient

from tests.benchmarks import work
from tests.benchmarks.machine import cpu_s

_HEADERS = {"content-type": "application/json", "authorization": "Bearer sk-benchmark-0123456789"}

Post = Callable[[bytes], Awaitable[bytes]]


@asynccontextmanager
async def _aiohttp(url: str, concurrency: int) -> Any:
    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector, headers=_HEADERS) as session:

        async def post(body: bytes) -> bytes:
            async with session.post(url, data=body) as response:
                return await response.read()

        yield post


@asynccontextmanager
async def _httpx_aiohttp(url: str, concurrency: int) -> Any:
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with HttpxAiohttpClient(limits=limits, headers=_HEADERS, timeout=60.0) as client:

        async def post(body: bytes) -> bytes:
            return (await client.post(url, content=body)).content

        yield post


@asynccontextmanager
async def _httpx(url: str, concurrency: int) -> Any:
    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(limits=limits, headers=_HEADERS, timeout=60.0) as client:

        async def post(body: bytes) -> bytes:
            return (await client.post(url, content=body)).content

        yield post


PEERS = {"aiohttp": _aiohttp, "httpx_aiohttp": _httpx_aiohttp, "httpx": _httpx}


async def _peer(name: str, url: str, concurrency: int, count: int) -> None:
    async with PEERS[name](f"{url}/chat/completions", concurrency) as post:
        left = work.bodies(count)
        await asyncio.gather(*(_drain(post, left) for _ in range(concurrency)))


async def _drain(post: Post, left: Iterator[bytes]) -> None:
    for body in left:
        reply = json.loads(await post(body))
        json.loads(reply["choices"][0]["message"]["content"])


async def _ours(url: str, concurrency: int, folder: Path) -> None:
    limits = {**work.WIDE, "max_in_flight": concurrency}
    asked = work.job(folder / "items.jsonl", url, folder / "results", extra=limits)
    manifest = await work.dispatched(asked, folder / "state.db")
    if manifest.good != manifest.items:
        raise SystemExit(f"not all items are ok: {manifest.counts}")


def main() -> None:
    """Run one contender and print its figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=("ours", *PEERS))
    parser.add_argument("--url", required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--items", type=int, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="llmbatch-bench-") as name:
        folder = Path(name)
        work.write_items(folder / "items.jsonl", given.items)
        began, cpu = time.perf_counter(), cpu_s()
        if given.name == "ours":
            asyncio.run(_ours(given.url, given.concurrency, folder))
        else:
            asyncio.run(_peer(given.name, given.url, given.concurrency, given.items))
        seconds, cpu = time.perf_counter() - began, cpu_s() - cpu
    print(json.dumps({"rps": given.items / seconds, "cpu_ms": cpu / given.items * 1000, "s": seconds}))


if __name__ == "__main__":
    main()
