"""Keys that stop working: parked for everybody, read again, tried again; judged from the arrivals."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.connection import ConnectionSettings, parse
from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
from airflow_provider_llmbatch.simulator.arrivals import Arrival
from airflow_provider_llmbatch.simulator.settings import SimulatedKey
from tests.engine.rehearsal import dispatched, job, rows, simulated, simulated_apart
from tests.services import workers
from tests.services.redis_server import running

FIRST, SECOND, ROTATED = "sk-first-0123456789", "sk-second-0123456789", "sk-rotated-0123456789"
KEYS = tuple(SimulatedKey(id=i, key=k, account=i) for i, k in (("a", FIRST), ("b", SECOND), ("c", ROTATED)))
REVOKED = {"status": 401, "error": {"code": "invalid_api_key", "message": "revoked"}}
POOL = {"arrival_slack": 0.2, "credentials": [{"api_key": SECOND, "id": "second"}], "credential_id": "first"}


def by_key(arrivals: list[Arrival]) -> dict[str, list[Arrival]]:
    found: dict[str, list[Arrival]] = {}
    for arrival in arrivals:
        found.setdefault(arrival.credential, []).append(arrival)
    return found


def pooled(count: int, url: str, folder: Path, **told: Any):
    told = {"extra": POOL, "policy": {"probe_s": 1.0}, **told}
    return job(rows(count), url, folder, key=FIRST, **told)


@pytest.mark.parametrize(
    "reply",
    [
        REVOKED,
        {"status": 402, "error": {"message": "pay first"}},
        {"status": 403, "error": {"code": "invalid_api_key", "message": "no"}},
        {"status": 429, "error": {"code": "insufficient_quota", "message": "no credit left"}},
    ],
)
async def test_a_refused_key_is_parked_and_the_other_one_does_the_work(tmp_path: Path, reply: dict[str, Any]):
    with simulated({"match": {"key": "a"}, "reply": reply}, keys=KEYS) as service:
        done = await dispatched(pooled(60, service.url, tmp_path, policy={"probe_s": 60.0}))
        calls = by_key(service.arrivals())
    assert done.outcomes == {Outcome.OK: 60}
    assert {result.credential for result in done.results} == {"second"}
    # A key that nobody has had an answer from is first tried by one call.
    assert (len(calls["a"]), len(calls["b"])) == (1, 60)
    assert [(event.what, event.name) for event in done.events.of(events.Parked)] == [("credential", "first")]


async def test_a_key_that_was_rotated_is_read_again_before_the_next_one_is_taken(tmp_path: Path):
    read: list[str] = []

    def reread(conn_id: str) -> ConnectionSettings:
        read.append(conn_id)
        return parse(conn_id, host=service.url, password=ROTATED, extra=POOL)

    with simulated({"match": {"key": "a"}, "reply": REVOKED}, keys=KEYS) as service:
        done = await dispatched(pooled(40, service.url, tmp_path, reread=reread))
        calls = by_key(service.arrivals())
    assert done.outcomes == {Outcome.OK: 40}
    assert read == ["llm"]
    assert {name: len(found) for name, found in calls.items()} == {"a": 1, "c": 40}


async def test_a_probe_brings_a_parked_key_back(tmp_path: Path):
    rule = {"match": {"key": "a", "until_s": 2.0}, "reply": REVOKED}
    with simulated(rule, keys=KEYS, latency_s=0.1) as service:
        work = pooled(300, service.url, tmp_path, extra={**POOL, "max_in_flight": 5})
        done = await dispatched(work)
        calls = by_key(service.arrivals())
    refused = [arrival.time for arrival in calls["a"] if arrival.status == 401]
    assert done.outcomes == {Outcome.OK: 300}
    assert len(calls["a"]) - len(refused) > 50
    assert len(refused) <= 4
    assert [event.what for event in done.events.of(events.Reopened)] == ["credential"]


async def test_without_a_credential_the_run_stops_and_resumes_when_there_is_one(tmp_path: Path):
    with simulated({"match": {}, "reply": REVOKED}, keys=KEYS) as service:
        work = pooled(30, service.url, tmp_path)
        stopped = (await dispatched(work)).manifest
        assert stopped.state == "stopped"
        assert stopped.counts == {Outcome.UNSENT: 30}
        assert "No credential is left" in stopped.reason
        assert "revoked" in stopped.reason
        assert len(service.arrivals()) == 2
        service.play()
        done = await dispatched(work)
    assert done.outcomes == {Outcome.OK: 30}


async def test_three_workers_together_call_a_key_that_is_refused_about_once(tmp_path: Path):
    """P26."""
    refused = {"match": {"key": "a"}, "reply": {**REVOKED, "echo_authorization": True}}
    with running(tmp_path / "redis") as redis, simulated(refused, keys=KEYS) as service:
        wanted = {"state": redis.url, "url": service.url, "key": FIRST, "items": 20, "extra": POOL}
        wanted |= {"max_tokens": 400, "hold": True}
        started = [workers.start(name=f"w{n}", results=str(tmp_path / f"r{n}"), **wanted) for n in range(3)]
        await asyncio.to_thread(workers.release, started)
        manifests = [await asyncio.to_thread(workers.manifest, worker) for worker in started]
        calls = by_key(service.arrivals())
        state = RedisState(connect(redis.url))
        parked = await state.parked()
        await state.close()
    assert [one["counts"] for one in manifests] == [{"ok": 20}] * 3
    # Each start of a task may try a key once: it may have been mended.
    assert 1 <= len(calls["a"]) <= 3
    assert len(calls["b"]) == 60
    # What everybody is told has the key's id and what the service said, not the key.
    (closed,) = parked
    assert closed.gate.startswith("credential/first/")
    assert closed.reason == "401 invalid_api_key"
    told = [str(manifests), str(parked), *(f.read_text() for f in tmp_path.glob("r*/*"))]
    assert len(told) > 5
    assert not any(FIRST in text or SECOND in text for text in told)


async def test_a_key_revoked_under_four_workers_gets_no_new_call_a_second_later(tmp_path: Path):
    """Four processes with fifty calls open each; one key dies in the middle."""
    arguments = (
        "--latency",
        "0.3",
        "--rpm",
        "1000000",
        "--tpm",
        "1000000000",
        "--keys",
        f"a={FIRST},b={SECOND}",
    )
    with running(tmp_path / "redis") as redis, simulated_apart(*arguments) as service:
        wanted = {
            "state": redis.url,
            "url": service.url,
            "key": FIRST,
            "items": 250,
            "extra": {**POOL, "max_in_flight": 200, "concurrency": 50},
            "hold": True,
        }
        started = [workers.start(name=f"w{n}", results=str(tmp_path / f"r{n}"), **wanted) for n in range(4)]
        await asyncio.to_thread(workers.release, started)
        until = time.monotonic() + 30
        while len(service.arrivals()) < 300:
            assert time.monotonic() < until, "the workers do not send"
            await asyncio.sleep(0.1)
        service.play({"match": {"key": "a"}, "reply": REVOKED})
        manifests = [await asyncio.to_thread(workers.manifest, worker) for worker in started]
        arrivals = service.arrivals()
    assert [one["counts"] for one in manifests] == [{"ok": 250}] * 4
    first_refusal = min(a.time + a.duration for a in arrivals if a.status == 401)
    late = [a.time - first_refusal for a in by_key(arrivals)["a"] if a.time > first_refusal + 1.0]
    assert late == []
    assert len([a for a in arrivals if a.status == 401]) <= 400
