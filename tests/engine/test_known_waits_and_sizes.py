"""Known failures of waits and sizes, each against a simulated service over a socket."""

from __future__ import annotations

import json
from pathlib import Path

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.summary import MANIFEST_BYTES
from tests.engine.rehearsal import Recorder, dispatched, job, rows, simulated


async def test_a_wait_that_stands_only_in_words_comes_back_as_a_number_and_fails_no_item(tmp_path: Path):
    """P24."""
    words = "No deployments available for selected model. Try again in 40 seconds."
    refusal = {"status": 429, "error": {"message": words, "type": "None", "code": "429"}}
    patience = {"defer_after_s": 20.0, "max_wait_s": 3600.0}
    state = SqliteState(":memory:")
    with simulated({"reply": refusal}) as simulator:
        work = job(rows(30), simulator.url, tmp_path, policy=patience, extra={"max_in_flight": 1})
        manifest = await run(work, whole(work), state=state, observe=Recorder(), note=print)
        await state.close()
        assert len(simulator.arrivals()) == 1
        assert (manifest.state, manifest.retryable) == ("stopped", True)
        assert 25.0 < (manifest.retry_after_s or 0.0) <= 41.0
        assert manifest.counts == {Outcome.UNSENT: 30}
        simulator.play()
        done = await dispatched(job(rows(30), simulator.url, tmp_path))
    assert done.outcomes == {Outcome.OK: 30}


async def test_two_thousand_results_are_on_disk_and_their_account_stays_small(tmp_path: Path):
    """P82."""
    with simulated(output_words=1) as simulator:
        done = await dispatched(job(rows(2000), simulator.url, tmp_path, extra={"max_in_flight": 200}))
    assert done.outcomes == {Outcome.OK: 2000}
    assert len(json.dumps(done.manifest.to_json())) < MANIFEST_BYTES
    assert sum(file.stat().st_size for file in (tmp_path / "results").rglob("part-*")) > 500_000
