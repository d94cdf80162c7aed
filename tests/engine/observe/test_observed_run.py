"""What observers see of a whole run, and what others see of it while it goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.observe.events import Fanout, Pulse, RunEnded
from airflow_provider_llmbatch.engine.observe.metrics import MetricsObserver
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.state.protocols import Standing
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.errors import StaleFenceError
from tests.engine.observe.test_metrics import Server
from tests.engine.rehearsal import Recorder, job, rows, simulated

#: Sixty items at forty in three seconds: most of the run is a wait.
LIMITED = {"requests_per_minute": 40, "window_s": 3, "arrival_slack": 0.2}


async def test_a_run_at_its_limit_is_seen_from_outside_and_its_waits_add_up(tmp_path: Path) -> None:
    server = Server()
    state, other = SqliteState(tmp_path / "state.db"), SqliteState(tmp_path / "state.db")
    with simulated() as service:
        work = job(rows(60), service.url, tmp_path, extra=LIMITED, params={"max_tokens": 400})
        metrics = MetricsObserver(server, job="label_rows", task="send")
        running = asyncio.create_task(
            run(work, whole(work), state=state, observe=metrics, note=lambda text: None)
        )
        stood: list[Standing] = []
        while not running.done():
            await asyncio.wait({running}, timeout=0.2)
            if (standing := await other.standing(work.owner)) is not None and standing not in stood:
                stood.append(standing)
        manifest = await running
    await state.close()
    await other.close()
    assert len(stood) >= 2
    assert all(standing.figures["state"] == "running" for standing in stood[:-1])
    assert 0 < stood[0].done < 60
    assert [standing.done for standing in stood] == sorted(standing.done for standing in stood)
    last = stood[-1]
    assert (last.done, last.items, last.figures["state"]) == (60, 60, "complete")
    assert last.result_path == manifest.result_path
    assert last.figures["tokens"]["in"] == manifest.usage.prompt
    waited_ms = {name: n for name, n in server.counters.items() if name.startswith("waited_ms.")}
    assert waited_ms["waited_ms.requests_per_minute"] > 1000
    assert sum(waited_ms.values()) == pytest.approx(1000 * manifest.limits["waited_s"], abs=100)
    # The last twenty requests are still in the window; the first forty may be.
    assert 0.5 <= server.gauges["limit_use.requests_per_minute"] <= 1.0


async def test_a_run_that_fails_ends_for_its_observers_too(tmp_path: Path) -> None:
    state, recorder, server = SqliteState(tmp_path / "state.db"), Recorder(), Server()
    with simulated() as service:
        work = job(rows(60), service.url, tmp_path, extra=LIMITED, params={"max_tokens": 400})
        observe = Fanout([recorder, MetricsObserver(server, job="label_rows", task="send")])
        running = asyncio.create_task(
            run(work, whole(work), state=state, observe=observe, note=lambda text: None)
        )
        while (standing := await state.standing(work.owner)) is None:
            await asyncio.wait({running}, timeout=0.1)
        assert standing.figures["state"] == "running"
        await state.next(work.owner)
        with pytest.raises(StaleFenceError):
            await running
    standing = await state.standing(work.owner)
    await state.close()
    (ended,) = recorder.of(RunEnded)
    assert (ended.state, "has been replaced by try" in ended.reason) == ("stopped", True)
    assert isinstance(recorder.seen[-1], RunEnded)
    assert standing is not None
    assert (standing.figures["state"], standing.figures["waits_for"]) == ("stopped", "")
    counts = Counter({name: n for name, n in server.counters.items() if name.startswith("items.")})
    assert server.counters["runs.stopped"] == 1
    assert counts["items.ok"] == standing.done


async def test_a_run_of_a_moment_has_a_pulse_as_well(tmp_path: Path) -> None:
    state, recorder = SqliteState(":memory:"), Recorder()
    with simulated() as service:
        work = job(rows(3), service.url, tmp_path, extra={"tokens_per_minute": 10**6})
        await run(work, whole(work), state=state, observe=recorder, note=lambda text: None)
    await state.close()
    (pulse,) = recorder.of(Pulse)
    ((limit, use),) = pulse.use.items()
    assert limit.endswith("/tokens_per_minute")
    assert 0 < use < 0.01
    assert pulse.late_arrivals == 0
