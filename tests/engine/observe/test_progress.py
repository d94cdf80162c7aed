from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Usage
from airflow_provider_llmbatch.engine.observe.events import ItemDone, Pulse, RunEnded, RunStarted
from airflow_provider_llmbatch.engine.observe.progress import ProgressObserver
from airflow_provider_llmbatch.engine.state.protocols import Standing
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.errors import StateUnreachableError

OWNER = "label_rows/manual/send/3"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[SqliteState]:
    state = SqliteState(tmp_path / "state.db", now=lambda: 1_700_000_000.0)
    yield state
    await state.close()


@pytest.fixture
def progress(state: SqliteState, clock: Clock) -> ProgressObserver:
    return ProgressObserver(state.report, owner=OWNER, result_path="/results", now=clock)


def done(outcome: Outcome = Outcome.OK, **more: Any) -> ItemDone:
    known: dict[str, Any] = {
        **{"usage": Usage(prompt=100, cached=40, completion=10), "cost": Cost(usd=Decimal("0.001"))},
        **{"queue_ms": 5.0, "call_ms": 900.0, "endpoint": "main", "model": "small-1"},
    }
    return ItemDone(outcome=outcome, **{**known, **more})


async def test_another_process_reads_where_the_run_stands(
    progress: ProgressObserver, state: SqliteState, clock: Clock, tmp_path: Path
) -> None:
    progress.on(RunStarted(items=1000, resumed=100))
    for outcome in [Outcome.OK] * 30 + [Outcome.REFUSED] * 20:
        progress.on(done(outcome))
    full = {"acme/small-*/tokens_per_minute": 0.98765}
    progress.on(Pulse(waits_for="acme/small-*/tokens_per_minute", use=full))
    clock.now += 10
    await progress.store()
    other = SqliteState(tmp_path / "state.db")
    try:
        assert await other.standing(OWNER) == Standing(
            owner=OWNER,
            result_path="/results",
            done=150,
            items=1000,
            figures={
                "state": "running",
                "resumed": 100,
                "counts": {"ok": 30, "refused": 20},
                "rate": 5.0,
                "eta_s": 170,
                "usd": "0.050",
                "unpriced": False,
                "tokens": {"in": 5000, "cached": 2000, "out": 500, "reasoning": 0},
                "waits_for": "acme/small-*/tokens_per_minute",
                "use": {"acme/small-*/tokens_per_minute": 0.988},
            },
            at=1_700_000_000.0,
        )
    finally:
        await other.close()


async def test_a_run_that_has_not_begun_stands_at_nothing(
    progress: ProgressObserver, state: SqliteState
) -> None:
    await progress.store()
    standing = await state.standing(OWNER)
    assert standing is not None
    assert (standing.done, standing.items, standing.figures["eta_s"]) == (0, 0, None)


async def test_the_end_is_said_and_nothing_is_waited_for_any_more(
    progress: ProgressObserver, state: SqliteState
) -> None:
    progress.on(RunStarted(items=3))
    progress.on(Pulse(waits_for="in_flight"))
    progress.on(RunEnded(state="stopped", reason="no credential is left"))
    await progress.store()
    standing = await state.standing(OWNER)
    assert standing is not None
    assert (standing.figures["state"], standing.figures["waits_for"]) == ("stopped", "")


def test_what_the_next_try_sends_again_is_not_done(progress: ProgressObserver) -> None:
    progress.on(RunStarted(items=4, resumed=1))
    for outcome in (Outcome.OK, Outcome.EXHAUSTED, Outcome.UNSENT):
        progress.on(done(outcome))
    standing = progress.standing()
    assert standing.done == 2
    assert standing.figures["counts"] == {"ok": 1, "exhausted": 1, "unsent": 1}


def test_figures_are_small_and_strict_json_whatever_happened(progress: ProgressObserver) -> None:
    progress.on(RunStarted(items=100_000))
    for number in range(10_000):
        progress.on(done(item_id=f"item-{number}", model=f"model-{number}", endpoint=f"host-{number}"))
    assert len(json.dumps(dict(progress.standing().figures), allow_nan=False)) < 500


@pytest.mark.parametrize("way", ["away", "hanging"])
async def test_a_store_that_is_away_is_told_of_once_and_hurts_nothing(
    way: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def report(_: Standing) -> None:
        if way == "away":
            raise StateUnreachableError("Redis at redis:6379 refuses connections.")
        await asyncio.Event().wait()

    progress = ProgressObserver(report, owner=OWNER, result_path="/results", patience_s=0.01, now=clock)
    with caplog.at_level(logging.WARNING):
        await progress.store()
        await progress.store()
    (record,) = caplog.records
    assert (
        "the run goes on: " + {"away": "Redis at", "hanging": "no answer within 0.01 s"}[way]
        in record.message
    )
