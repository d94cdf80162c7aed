"""Known failures of waits and sizes, each against a simulated service over a socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.summary import MANIFEST_BYTES
from airflow_provider_llmbatch.simulator.settings import SimulatedKey
from tests.engine.rehearsal import Recorder, dispatched, job, rows, simulated

KEYS = tuple(SimulatedKey(id=name, key=f"sk-{name}", account=name) for name in "ab")
POOL = {"max_in_flight": 1, "credentials": [{"api_key": "sk-b", "id": "b"}, {"api_key": "sk-c", "id": "c"}]}


def busy(key: str, wait_s: int) -> dict[str, Any]:
    """Return a rule by which a key is told in words alone to wait."""
    words = f"No deployments available for selected model. Try again in {wait_s} seconds."
    refusal = {"status": 429, "error": {"message": words, "type": "None", "code": "429"}}
    return {"match": {"key": key}, "reply": refusal}


async def test_while_no_key_may_be_used_the_wait_comes_back_as_a_number_and_no_item_fails(tmp_path: Path):
    """P24."""
    patience = {"defer_after_s": 20.0, "max_wait_s": 3600.0}
    state = SqliteState(":memory:")
    with simulated(*(busy(key, wait_s) for key, wait_s in (("a", 40), ("b", 55))), keys=KEYS) as simulator:
        # The third key is known to nobody there.
        work = job(rows(30), simulator.url, tmp_path, key="sk-a", policy=patience, extra=POOL)
        manifest = await run(work, whole(work), state=state, observe=Recorder(), note=print)
        await state.close()
        assert sorted((a.credential, a.status) for a in simulator.arrivals()) == [
            ("", 401),
            ("a", 429),
            ("b", 429),
        ]
        assert (manifest.state, manifest.retryable) == ("stopped", True)
        # That of the key which is free first.
        assert 25.0 < (manifest.retry_after_s or 0.0) <= 41.0
        assert manifest.counts == {Outcome.UNSENT: 30}
        simulator.play()
        done = await dispatched(job(rows(30), simulator.url, tmp_path, key="sk-a", extra=POOL))
    assert done.outcomes == {Outcome.OK: 30}


async def test_two_thousand_results_are_on_disk_and_their_account_stays_small(tmp_path: Path):
    """P82."""
    with simulated(output_words=1) as simulator:
        done = await dispatched(job(rows(2000), simulator.url, tmp_path, extra={"max_in_flight": 200}))
    assert done.outcomes == {Outcome.OK: 2000}
    assert len(json.dumps(done.manifest.to_json())) < MANIFEST_BYTES
    assert sum(file.stat().st_size for file in (tmp_path / "results").rglob("part-*")) > 500_000
