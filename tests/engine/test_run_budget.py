"""Money over a socket: a budget stops a run in time, and the rest can be sent later."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Chunk, Outcome, RunRef
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.run import plan, run
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.errors import ConfigurationError
from tests.engine.rehearsal import A_DOLLAR_A_MILLION, Recorder, dispatched, job, rows, simulated

#: What a call can cost at most: some twenty tokens of prompt, and the cap.
WORST = Decimal("0.00035")


def budgeted(folder: Path, url: str, count: int, usd: str, **told: Any) -> Job:
    return job(rows(count), url, folder, prices=A_DOLLAR_A_MILLION, budget_usd=Decimal(usd), **told)


@pytest.mark.parametrize("in_flight", [1, 20])
async def test_a_budget_is_spent_to_within_one_call_and_never_overspent(tmp_path: Path, in_flight: int):
    with simulated(latency_s=0.01, output_words=20) as simulator:
        work = budgeted(tmp_path, simulator.url, 120, "0.004", extra={"max_in_flight": in_flight})
        done = await dispatched(work)
        arrivals = len(simulator.arrivals())
    assert done.manifest.state == "stopped"
    assert not done.manifest.retryable
    assert "budget" in done.manifest.reason
    assert set(done.outcomes) == {Outcome.OK, Outcome.UNSENT}
    assert done.outcomes[Outcome.OK] == arrivals
    # What calls that were open had reserved, and did not use, was given to the next ones.
    assert Decimal("0.004") - WORST <= done.manifest.cost.usd <= Decimal("0.004")


async def test_what_a_budget_left_unsent_is_sent_with_a_larger_one_and_nothing_twice(tmp_path: Path):
    state = SqliteState(tmp_path / "state.db")
    with simulated(output_words=20) as simulator:
        first = await dispatched(budgeted(tmp_path, simulator.url, 120, "0.002"), state)
        second = await dispatched(budgeted(tmp_path, simulator.url, 120, "0.004"), state)
        third = await dispatched(budgeted(tmp_path, simulator.url, 120, "1"), state)
        arrivals = simulator.arrivals()
    await state.close()
    assert 0 < first.outcomes[Outcome.OK] < second.outcomes[Outcome.OK] < 120
    assert Decimal("0.004") - WORST <= second.manifest.cost.usd <= Decimal("0.004")
    assert third.outcomes == {Outcome.OK: 120}
    assert len({arrival.sha for arrival in arrivals}) == len(arrivals) == 120
    assert third.manifest.resumed == second.outcomes[Outcome.OK]


async def test_a_lost_state_does_not_make_a_budget_whole_again(tmp_path: Path):
    with simulated(output_words=20) as simulator:
        first = await dispatched(budgeted(tmp_path, simulator.url, 60, "0.002"))
        # Another process, and nobody has kept the state; the ledger knows.
        second = await dispatched(budgeted(tmp_path, simulator.url, 60, "0.002"))
    assert second.outcomes == first.outcomes
    assert second.manifest.cost == first.manifest.cost


async def test_chunks_of_one_task_share_the_budget(tmp_path: Path):
    state = SqliteState(tmp_path / "state.db")
    with simulated(latency_s=0.02, output_words=20) as simulator:

        def part(number: int) -> Job:
            ref = RunRef(dag="d", run="r", task="t", map_index=number)
            return budgeted(tmp_path, simulator.url, 120, "0.004", run=ref, extra={"max_in_flight": 10})

        split = plan(part(0), token_budget=1, max_chunks=3, strategy="balanced", note=print)

        async def dispatch(chunk: Chunk) -> Decimal:
            manifest = await run(part(chunk.number), chunk, state=state, observe=Recorder(), note=print)
            return manifest.cost.usd

        costs = await asyncio.gather(*(dispatch(chunk) for chunk in split.chunks))
    await state.close()
    assert len(costs) == 3
    assert Decimal("0.004") - WORST <= sum(costs) <= Decimal("0.004")


async def test_a_reply_that_a_budget_keeps_from_growing_is_truncated_and_kept(tmp_path: Path):
    """P43."""
    with simulated({"reply": {"truncate": True}}) as simulator:
        done = await dispatched(budgeted(tmp_path, simulator.url, 1, "0.0005"))
        assert len(simulator.arrivals()) == 1
    assert done.outcomes == {Outcome.TRUNCATED: 1}
    assert done.results[0].raw_output


async def test_failed_calls_that_surely_cost_nothing_take_nothing_from_a_budget(tmp_path: Path):
    busy = {"status": 429, "error": {"message": "slow down"}, "headers": {"retry-after-ms": "1"}}
    with simulated({"match": {"first": 30}, "reply": busy}, output_words=10) as simulator:
        # So many that none is throttled more often than the service's words are believed.
        done = await dispatched(budgeted(tmp_path, simulator.url, 8, "0.0008", extra={"max_in_flight": 1}))
    assert done.outcomes == {Outcome.OK: 8}


async def test_a_budget_without_a_price_is_refused_before_a_call(tmp_path: Path):
    with simulated() as simulator:
        work = job(rows(3), simulator.url, tmp_path, model="my-own-model", budget_usd=Decimal(1))
        with pytest.raises(ConfigurationError, match="price of model 'my-own-model' is not known"):
            await dispatched(work)
        assert simulator.arrivals() == []


async def test_an_unknown_price_is_unpriced_and_never_zero(tmp_path: Path):
    with simulated() as simulator:
        done = await dispatched(job(rows(1), simulator.url, tmp_path, model="my-own-model"))
    assert done.results[0].cost.unpriced
    assert done.manifest.cost.unpriced
