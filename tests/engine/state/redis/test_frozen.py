"""A Redis that holds its connections and answers nobody: design.md, invariant 6."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.observe.events import Fanout, StateBack, StateLost
from airflow_provider_llmbatch.engine.observe.log import LogObserver
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
from airflow_provider_llmbatch.simulator.arrivals import doubles, max_in_window
from tests.engine.rehearsal import Recorder, Simulated, job, rows, simulated
from tests.services.redis_server import running

AWAY_S = 30.0
WINDOW_S, RPM = 6.0, 120
EXTRA = {"requests_per_minute": RPM, "window_s": WINDOW_S, "arrival_slack": 0.5, "burst_seconds": 0.5}


@pytest.mark.slow
async def test_a_store_that_answers_nobody_for_half_a_minute_pauses_the_run_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    recorder = Recorder()
    with (
        running(tmp_path / "redis") as redis,
        simulated(rpm=RPM, window_s=WINDOW_S, latency_s=0.1) as service,
    ):
        asked = job(rows(150), service.url, tmp_path, extra=EXTRA)
        state = RedisState(connect(redis.url))
        observe = Fanout([recorder, LogObserver(logging.getLogger("frozen"), total=150)])
        going = asyncio.create_task(
            run(asked, whole(asked), state=state, observe=observe, note=logging.getLogger("frozen").info)
        )
        await _until(service, 30)
        redis.freeze()
        try:
            # What was granted before may still leave, within the slack.
            await asyncio.sleep(1.0)
            before = len(service.arrivals())
            await asyncio.sleep(AWAY_S - 1.0)
            assert len(service.arrivals()) == before, "calls left without the shared limits"
        finally:
            redis.thaw()
        manifest = await going
        await state.close()
        seen = service.arrivals()
    assert manifest.counts == {"ok": 150}
    assert [a.status for a in seen if a.status != 200] == []
    assert doubles(seen) == {}
    assert max_in_window([(a.time, 1) for a in seen], WINDOW_S) <= RPM
    assert [event.policy for event in recorder.of(StateLost)] == ["paused"]
    assert [event.away_s > AWAY_S / 2 for event in recorder.of(StateBack)] == [True]
    assert "Redis cannot be reached" in caplog.text


async def _until(service: Simulated, count: int) -> None:
    async with asyncio.timeout(60):
        while len(service.arrivals()) < count:
            await asyncio.sleep(0.02)
