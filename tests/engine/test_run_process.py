"""What a run takes from its process: files, threads, loops; and how it ends when it is told to."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path

from airflow_provider_llmbatch.engine.items import Outcome, RunRef
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from tests.contracts.states import needs, scope
from tests.engine.rehearsal import Done, Recorder, dispatched, job, rows, simulated

ROOT = Path(__file__).parents[2]
FEW_FILES = """
import asyncio, json, os, resource, sys
from pathlib import Path
from airflow_provider_llmbatch.engine.observe import events
from tests.engine.rehearsal import dispatched, job, rows

files, left, items, url, folder = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))

async def main():
    # Somebody else in the process holds the files that are not left.
    held = [open(os.devnull) for _ in range(int(files) - int(left) - len(os.listdir("/proc/self/fd")))]
    done = await dispatched(job(rows(int(items)), url, Path(folder), extra={"max_in_flight": 1000}))
    out_of_files = sum(event.code == "EMFILE" for event in done.events.of(events.CallFailed))
    tries = sum(result.attempts for result in done.results)
    double = done.manifest.possible_double_paid
    print(json.dumps({**done.outcomes, "double": double, "out_of_files": out_of_files, "calls": tries}))

asyncio.run(main())
"""


def with_few_files(files: int, left: int, items: int, url: str, folder: Path) -> dict[str, int]:
    command = [sys.executable, "-c", FEW_FILES, str(files), str(left), str(items), url, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_process_with_few_files_sends_everything_although_every_first_try_is_reset(tmp_path: Path):
    """P32."""
    rule = {"match": {"attempt": 1}, "reply": {"reset": "before"}}
    with simulated(rule, latency_s=0.5) as simulator:
        counts = with_few_files(256, 220, 300, simulator.url, tmp_path)
        assert 100 < simulator.stats()["max_in_flight"] <= 256 - 64
        assert len(simulator.arrivals()) == 600
    assert counts == {"ok": 300, "double": 300, "out_of_files": 0, "calls": 600}


def test_running_out_of_files_pauses_and_loses_no_item(tmp_path: Path):
    """P32."""
    with simulated(latency_s=0.05) as simulator:
        counts = with_few_files(100, 10, 60, simulator.url, tmp_path)
        assert len(simulator.arrivals()) == 60
    assert counts.pop("out_of_files") > 0
    assert counts.pop("calls") > 60
    assert counts == {"ok": 60, "double": 0}


def test_two_threads_with_a_loop_each_run_side_by_side(tmp_path: Path):
    """P34."""
    path, done = tmp_path / "state.db", dict[str, Done]()

    def work(name: str, url: str) -> None:
        async def main() -> Done:
            state = SqliteState(path)
            try:
                return await dispatched(job(rows(20), url, tmp_path / name, run=RunRef(task=name)), state)
            finally:
                await state.close()

        done[name] = asyncio.run(main())

    with simulated(latency_s=0.02) as simulator:
        threads = [threading.Thread(target=work, args=(name, simulator.url)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        assert len(simulator.arrivals()) == 40
    assert {name: one.outcomes for name, one in done.items()} == {
        "a": {Outcome.OK: 20},
        "b": {Outcome.OK: 20},
    }


async def test_a_run_that_is_cancelled_frees_its_calls_and_goes_on_later(tmp_path: Path):
    state = SqliteState(tmp_path / "state.db")
    told = {"max_in_flight": 10}
    with simulated({"match": {"nth": tuple(range(41, 51))}, "reply": {"delay_s": 60}}) as simulator:
        work = job(rows(100), simulator.url, tmp_path, extra=told)
        running = asyncio.create_task(
            run(work, whole(work), state=state, observe=Recorder(), note=lambda _: None)
        )
        async with asyncio.timeout(20):
            while simulator.stats()["in_flight"] < 10:
                await asyncio.sleep(0.02)
        running.cancel()
        async with asyncio.timeout(3):
            await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()
        meter = work.connection.credentials[0].account + "/gpt-4o-mini"
        taken = await state.take(scope(throttle=meter, max_in_flight=10), needs(10))
        assert len(taken.grants) == 10
        simulator.play()
        await state.next("dag/run/task/-1")
        done = await dispatched(work, state)
        arrivals = simulator.arrivals()
    await state.close()
    assert done.outcomes == {Outcome.OK: 100}
    # Only what was open is sent twice, and is known to have been.
    assert len(arrivals) == 110
    assert done.manifest.possible_double_paid == 10


async def test_a_newer_try_stops_the_older_one_and_adopts_what_it_had_paid(tmp_path: Path):
    state = SqliteState(tmp_path / "state.db")
    with simulated(latency_s=0.1) as simulator:
        work = job(rows(120), simulator.url, tmp_path, extra={"max_in_flight": 10})

        async def old() -> str:
            try:
                await run(work, whole(work), state=state, observe=Recorder(), note=lambda _: None)
            except Exception as error:
                return type(error).__name__
            return "finished"

        older = asyncio.create_task(old())
        async with asyncio.timeout(20):
            while len(simulator.arrivals()) < 30:
                await asyncio.sleep(0.02)
        done = await dispatched(work, state)
        assert await older == "StaleFenceError"
        arrivals = simulator.arrivals()
    await state.close()
    assert done.outcomes == {Outcome.OK: 120}
    # What was open when the newer try looked may be asked twice; nothing else is.
    assert len(arrivals) <= 130
