"""The same questions in several runs are paid once: design.md, invariant 4."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from airflow_provider_llmbatch.engine.connection import parse
from airflow_provider_llmbatch.engine.items import RunRef
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.observe.log import LogObserver
from airflow_provider_llmbatch.engine.prompt import inline_prompt
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.source import open_source
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.state.sqlite.claims import SqliteClaims
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.engine.validate.schema import output_schema
from airflow_provider_llmbatch.simulator.arrivals import Arrival, read_arrivals
from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings


def job(url: str, folder: Path, name: str, **changes: Any) -> Job:
    made = Job(
        source=open_source([{"id": f"{name}-{n}", "prompt": f"question {n}"} for n in range(20)]),
        prompt=inline_prompt("Be brief.", None),
        connection=parse(
            "sim",
            host=url,
            password="sk-reused",
            extra={"prices": {"sim-small": {"input": "1", "output": "4"}}, "max_in_flight": 5},
        ),
        model="sim-small",
        schema=output_schema(None),
        result_path=str(folder / name),
        run=RunRef(dag="d", run=name, task="t"),
        params={"max_tokens": 200},
    )
    return replace(made, **changes)


async def dispatch(job: Job, state: SqliteState, *, claims: bool = True) -> Manifest:
    log = LogObserver(logging.getLogger("test"), 20)
    told = SqliteClaims(state) if claims else None
    return await run(job, whole(job), state=state, observe=log, note=logging.info, claims=told)


def arrived(url: str) -> list[Arrival]:
    return read_arrivals(httpx.get(f"{url.removesuffix('/v1')}/_sim/arrivals").json())


async def test_a_later_run_takes_the_answers_of_an_earlier_one_and_says_what_it_saved(tmp_path: Path):
    state = SqliteState(":memory:")
    with running(SimulatorSettings(latency_s=0.0)) as url:
        first = await dispatch(job(url, tmp_path, "a"), state)
        second = await dispatch(job(url, tmp_path, "b"), state)
        seen = arrived(url)
    await state.close()
    mine, theirs = (list(results(open_folder(str(tmp_path / name)))) for name in "ab")
    assert len(seen) == 20
    assert [row.output for row in mine] == [row.output for row in theirs]
    assert [row.id for row in theirs] == [f"b-{n}" for n in range(20)]
    assert (second.cost.usd, second.saved_usd) == (0, first.cost.usd)
    assert second.usage.total == 0
    assert all(row.attempts == 0 for row in theirs)


async def test_two_runs_at_once_pay_each_question_once(tmp_path: Path):
    state = SqliteState(":memory:")
    with running(SimulatorSettings(latency_s=0.05)) as url:
        both = await asyncio.gather(*(dispatch(job(url, tmp_path, name), state) for name in "ab"))
        seen = arrived(url)
    await state.close()
    assert len(seen) == 20
    assert [manifest.good for manifest in both] == [20, 20]
    assert sum(manifest.cost.usd for manifest in both) == sum(manifest.saved_usd for manifest in both)


async def test_without_claims_every_run_asks_for_itself(tmp_path: Path):
    state = SqliteState(":memory:")
    with running(SimulatorSettings(latency_s=0.0)) as url:
        for name in "ab":
            await dispatch(job(url, tmp_path, name), state, claims=False)
        seen = arrived(url)
    await state.close()
    assert len(seen) == 40


async def test_a_question_that_failed_may_be_asked_by_the_next_run(tmp_path: Path):
    state = SqliteState(":memory:")
    with running(SimulatorSettings(latency_s=0.0)) as url:
        refuse = {"rules": [{"match": {"first": 20}, "reply": {"refusal": "No."}}]}
        httpx.post(f"{url.removesuffix('/v1')}/_sim/scenario", json=refuse).raise_for_status()
        first = await dispatch(job(url, tmp_path, "a", policy=_patient()), state)
        second = await dispatch(job(url, tmp_path, "b"), state)
    await state.close()
    assert first.counts == {"refused": 20}
    assert second.counts == {"ok": 20}


async def test_an_answer_whose_rows_are_gone_is_asked_for_again(tmp_path: Path):
    state = SqliteState(":memory:")
    with running(SimulatorSettings(latency_s=0.0)) as url:
        await dispatch(job(url, tmp_path, "a"), state)
        for file in (tmp_path / "a").iterdir():
            file.unlink()
        second = await dispatch(job(url, tmp_path, "b"), state)
        seen = arrived(url)
    await state.close()
    assert second.counts == {"ok": 20}
    assert len(seen) == 40


async def test_other_params_are_another_question(tmp_path: Path):
    state = SqliteState(":memory:")
    with running(SimulatorSettings(latency_s=0.0)) as url:
        await dispatch(job(url, tmp_path, "a"), state)
        await dispatch(job(url, tmp_path, "b", params={"max_tokens": 201}), state)
        seen = arrived(url)
    await state.close()
    assert len(seen) == 40


async def test_a_run_that_is_cancelled_lets_go_of_its_questions(tmp_path: Path):
    state = SqliteState(":memory:")
    with running(SimulatorSettings(latency_s=5.0)) as url:
        first = asyncio.create_task(dispatch(job(url, tmp_path, "a"), state))
        while not arrived(url):
            await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        claimed = await SqliteClaims(state).claim(_any_question(url, tmp_path), "other", fence=1)
    await state.close()
    assert claimed.won


def _any_question(url: str, folder: Path) -> str:
    from airflow_provider_llmbatch.engine.identity import request_fingerprint

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "question 0"}]
    return request_fingerprint(url, "sim-small", messages, {"max_tokens": 200}, "")


def _patient() -> Any:
    from airflow_provider_llmbatch.engine.dispatch.policy import Policy

    return Policy(fail_fast=0)
