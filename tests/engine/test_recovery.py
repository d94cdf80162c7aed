"""How many items end usable: retries alone, and with a person who says when to go on."""

from __future__ import annotations

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from tests.engine.rehearsal import dispatched, job, rows, simulated
from tests.engine.reviews import Review

ITEMS = 400
#: As the retries of a DAG, a hundred times faster.
PATIENCE = {"max_attempts": 3, "max_wait_s": 3.0}


def usable(counts) -> float:
    return sum(number for outcome, number in counts.items() if outcome.is_good) / ITEMS


@pytest.mark.parametrize("reset", ["before", "after"])
async def test_one_in_a_hundred_connections_that_break_costs_nothing(tmp_path, reset):
    with simulated({"match": {"probability": 0.01}, "reply": {"reset": reset}}) as simulator:
        done = await dispatched(job(rows(ITEMS), simulator.url, tmp_path, policy={"max_attempts": 3}))
        assert len(simulator.arrivals()) > ITEMS
    assert usable(done.outcomes) >= 0.999


async def test_a_service_that_is_away_for_longer_than_all_retries_costs_time_and_no_item(tmp_path):
    with simulated({"match": {}, "reply": {"status": 503}}) as simulator:
        done = await dispatched(job(rows(ITEMS), simulator.url, tmp_path, policy=PATIENCE))
        assert usable(done.outcomes) == 0.0
        review = Review(
            job(rows(ITEMS), simulator.url, tmp_path, policy=PATIENCE), done.manifest, tmp_path / "r"
        )
        assert review.open().size == ITEMS
        review.decide("retry")
        simulator.play()
        await review.carry_out()
    assert review.manifest.counts == {Outcome.OK: ITEMS}
    assert usable(review.manifest.counts) == 1.0
