"""
Worker processes that dispatch, each with its own items, over one shared state.

``python -m tests.services.workers`` with a JSON object on standard input runs one and prints its manifest.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.state.claims import Claimed
from airflow_provider_llmbatch.engine.state.redis.claims import RedisClaims

ROOT = Path(__file__).parents[2]
READY = "ready"


def start(*, root: Path = ROOT, **wanted: Any) -> subprocess.Popen[str]:
    """
    Start a worker.

    :param root: folder with the package and the tests; another one than ours holds another build.
    :param wanted: ``state`` (a URL), ``url`` of the service, ``results``, ``name``, ``items``, ``extra`` of
        the connection, and optionally ``sizes`` (words by item, in turn), ``key``, ``budget_usd``,
        ``max_tokens``, ``policy``, ``fallback`` (URL of a second service), ``hold`` (do nothing until
        :func:`release`), ``topic`` (what the questions are about,
        if not the worker itself), ``claimed_s`` (claim questions, for so many seconds).
    """
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.services.workers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(wanted) + "\n")
    worker.stdin.flush()
    if not wanted.get("hold"):
        _close_input(worker)
    return worker


def release(workers: Iterable[subprocess.Popen[str]]) -> None:
    """Let workers that are held begin, when all of them have started."""
    held = list(workers)
    for worker in held:
        assert worker.stdout is not None
        assert worker.stdout.readline().strip() == READY, "a worker did not get ready"
    for worker in held:
        _close_input(worker)


def _close_input(worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None
    worker.stdin.close()
    worker.stdin = None


def manifest(worker: subprocess.Popen[str], timeout: float = 120.0) -> dict[str, Any]:
    """Wait for a worker and return its manifest."""
    out, _ = worker.communicate(timeout=timeout)
    assert worker.returncode == 0, f"the worker ended with {worker.returncode}: {out}"
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


class ShortClaims(RedisClaims):
    """Claims that end soon when their owner is heard of no more."""

    def __init__(self, state: Any, held_s: float) -> None:
        super().__init__(state)
        self._held_s = held_s

    async def claim(self, question: str, holder: str, *, fence: int, held_s: float = 0.0) -> Claimed:
        return await super().claim(question, holder, fence=fence, held_s=self._held_s)


async def _run(wanted: dict[str, Any]) -> dict[str, Any]:
    from airflow_provider_llmbatch.engine.connection import parse
    from airflow_provider_llmbatch.engine.dispatch.policy import Policy
    from airflow_provider_llmbatch.engine.dispatch.route import read_routes
    from airflow_provider_llmbatch.engine.items import RunRef
    from airflow_provider_llmbatch.engine.job import Asked, Job, tools
    from airflow_provider_llmbatch.engine.observe.log import LogObserver
    from airflow_provider_llmbatch.engine.prompt import inline_prompt
    from airflow_provider_llmbatch.engine.run import run, whole
    from airflow_provider_llmbatch.engine.source import open_source
    from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
    from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
    from airflow_provider_llmbatch.engine.validate.schema import output_schema

    sizes = wanted.get("sizes", [20])
    topic = wanted.get("topic", wanted["name"])
    rows = [
        {"id": f"{wanted['name']}-{n}", "prompt": f"{topic} {n} " + "word " * sizes[n % len(sizes)]}
        for n in range(wanted["items"])
    ]
    job = Job(
        source=open_source(rows),
        prompt=inline_prompt("Answer briefly.", None),
        connection=parse(
            "sim", host=wanted["url"], password=wanted.get("key", "sk-test"), extra=wanted["extra"]
        ),
        model="sim-small",
        schema=output_schema(None),
        result_path=wanted["results"],
        run=RunRef(dag="d", run=wanted.get("run", "r"), task=wanted["name"]),
        params={"max_tokens": wanted.get("max_tokens", 60)},
        budget_usd=wanted.get("budget_usd"),
        policy=Policy(**wanted.get("policy", {})),
    )
    if "fallback" in wanted:
        other = parse("other", host=wanted["fallback"], password="sk-test", extra=wanted["extra"])
        asked = {
            "one": Asked(connection=job.connection, model=job.model),
            "two": Asked(connection=other, model=job.model),
        }
        job = replace(job, routes=read_routes(list(asked), ()), asked=asked)
    url = wanted["state"]
    state = (
        SqliteState(url.removeprefix("sqlite://")) if url.startswith("sqlite") else RedisState(connect(url))
    )
    if wanted.get("hold"):
        # Vocabulary and libraries are loaded before, so that all begin at once.
        tools(job, logging.info)
        print(READY, flush=True)
        sys.stdin.read()
    try:
        log = LogObserver(logging.getLogger(wanted["name"]), wanted["items"], interval_s=2.0)
        claims = ShortClaims(state, wanted["claimed_s"]) if "claimed_s" in wanted else None
        chunk = whole(job)
        return (await run(job, chunk, state=state, observe=log, note=logging.info, claims=claims)).to_json()
    finally:
        await state.close()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    print(json.dumps(asyncio.run(_run(json.loads(sys.stdin.readline())))), flush=True)
