"""
Memory does not follow the number of items (at most 16 bytes of it do).

Live objects are counted, not megabytes: one object kept for each item is found within some thousand items.
"""

from __future__ import annotations

import asyncio
import json
import sys
from array import array
from statistics import mean

import httpx
import pytest

from airflow_provider_llmbatch.engine.observe.events import Fanout
from airflow_provider_llmbatch.engine.observe.log import LogObserver
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.simulator.lean import completion
from tests.engine.rehearsal import job

pytestmark = pytest.mark.slow

ITEMS = 7_000
#: Calls that are looked at, at two times, and how many lie between them.
LOOK, EARLY, LATE = 500, 2_000, 6_000
#: Objects that may be kept for each item: none, but other tests' threads live in this process, too.
KEPT = 0.25


class Counting(httpx.AsyncBaseTransport):
    """Answers at once, and counts the objects that are alive at each call."""

    def __init__(self) -> None:
        # An array: the counts must not count themselves.
        self.alive = array("q")
        self._body = completion("a word")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.alive.append(sys.getallocatedblocks())
        await asyncio.sleep(0)
        return httpx.Response(200, content=self._body, request=request)


class Silent:
    """A log that keeps nothing."""

    def info(self, message: str, *args: object) -> None:
        pass

    warning = info


def test_no_object_is_kept_for_an_item(tmp_path):
    """P74."""
    source = tmp_path / "items.jsonl"
    lines = (json.dumps({"id": f"i{n}", "vars": {"text": f"number {n}"}}) + "\n" for n in range(ITEMS))
    source.write_text("".join(lines))
    transport = Counting()
    work = job(str(source), "http://in-process.invalid/v1", tmp_path, transport=lambda _: transport)

    async def dispatch():
        state = SqliteState(tmp_path / "state.db")
        observe = Fanout([LogObserver(Silent(), total=ITEMS)])
        try:
            return await run(work, whole(work), state=state, observe=observe, note=lambda _: None)
        finally:
            await state.close()

    manifest = asyncio.run(dispatch())
    assert manifest.good == len(transport.alive) == ITEMS
    early, late = (mean(transport.alive[at : at + LOOK]) for at in (EARLY, LATE))
    kept = (late - early) / (LATE - EARLY)
    print(f"{kept:.4f} objects are kept for an item")
    assert kept < KEPT
