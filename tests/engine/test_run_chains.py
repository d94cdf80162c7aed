"""Conversations whose turns build on each other, and replies that are asked for again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.observe import events
from tests.engine.rehearsal import A_DOLLAR_A_MILLION, dispatched, job, rows, simulated


def turns(group: str, count: int) -> list[dict[str, Any]]:
    return [
        {"id": f"{group}{n}", "prompt": f"turn {n} of {group}.", "group": group, "seq": n}
        for n in range(1, count + 1)
    ]


#: Each reply is only given to a conversation that holds the one before it.
FED_FORWARD = (
    {"match": {"contains": "second reply"}, "reply": {"content": "third reply"}},
    {"match": {"contains": "first reply"}, "reply": {"content": "second reply"}},
    {"match": {"contains": "turn 1"}, "reply": {"content": "first reply"}},
)


def outputs(done: Any) -> list[Any]:
    return [result.output for result in done.results]


async def test_every_turn_is_sent_with_the_turns_and_replies_before_it(tmp_path: Path):
    with simulated(*FED_FORWARD) as simulator:
        source = [*turns("a", 3), *rows(0), *turns("b", 2)]
        done = await dispatched(job(source, simulator.url, tmp_path))
        arrivals = simulator.arrivals()
    assert outputs(done) == ["first reply", "second reply", "third reply", "first reply", "second reply"]
    assert len(arrivals) == 5
    # A turn waits for the reply before it, however long the other chains take.
    first, second, third = (done.results[n].started_at for n in range(3))
    assert first <= second <= third


async def test_chains_run_beside_each_other_and_beside_single_items(tmp_path: Path):
    source = [
        *turns("a", 2),
        {"id": "x", "prompt": "alone"},
        *turns("b", 2),
        {"id": "y", "prompt": "alone too"},
    ]
    with simulated(latency_s=0.3, jitter=0.0) as simulator:
        done = await dispatched(job(source, simulator.url, tmp_path))
        assert simulator.stats()["max_in_flight"] == 4
    assert done.outcomes == {Outcome.OK: 6}


async def test_a_turn_that_fails_leaves_the_rest_of_its_chain_unsent(tmp_path: Path):
    broken = {"match": {"contains": "turn 2 of a"}, "reply": {"status": 400, "error": {"message": "no"}}}
    with simulated(broken) as simulator:
        done = await dispatched(job([*turns("a", 4), *turns("b", 3)], simulator.url, tmp_path))
        assert len(simulator.arrivals()) == 5
    assert [result.outcome for result in done.results[:4]] == [
        Outcome.OK,
        Outcome.BAD_REQUEST,
        Outcome.UNSENT,
        Outcome.UNSENT,
    ]
    assert done.results[2].error.kind == "broken_chain"
    assert "'a2'" in done.results[3].error.message
    assert {result.outcome for result in done.results[4:]} == {Outcome.OK}


async def test_a_chain_goes_on_where_it_broke_with_the_replies_that_were_paid(tmp_path: Path):
    away = {"match": {"contains": "first reply"}, "reply": {"status": 503, "error": {"message": "away"}}}
    with simulated(away, *FED_FORWARD) as simulator:
        source = turns("a", 3)
        broken = await dispatched(job(source, simulator.url, tmp_path, policy={"max_attempts": 1}))
        assert [result.outcome for result in broken.results] == [
            Outcome.OK,
            Outcome.EXHAUSTED,
            Outcome.UNSENT,
        ]
        simulator.play(*FED_FORWARD)
        before = len(simulator.arrivals())
        done = await dispatched(job(source, simulator.url, tmp_path))
        assert len(simulator.arrivals()) - before == 2
    assert outputs(done) == ["first reply", "second reply", "third reply"]
    assert done.manifest.resumed == 1


async def test_a_finished_chain_is_not_sent_again(tmp_path: Path):
    with simulated() as simulator:
        for _ in range(2):
            done = await dispatched(job(turns("a", 3), simulator.url, tmp_path))
        assert len(simulator.arrivals()) == 3
    assert done.manifest.resumed == 3


async def test_a_row_that_is_no_item_breaks_no_other_chain(tmp_path: Path):
    source = [*turns("a", 2), {"id": "odd"}, *turns("b", 2)]
    with simulated() as simulator:
        done = await dispatched(job(source, simulator.url, tmp_path))
    assert done.outcomes == {Outcome.OK: 4, Outcome.UNRENDERED: 1}


class Label(BaseModel):
    label: str
    score: float


GOOD = json.dumps({"label": "ok", "score": 0.5})
BAD = json.dumps({"label": "ok", "score": "high"})


async def test_a_reply_that_breaks_the_schema_is_asked_for_again_with_what_is_wrong(tmp_path: Path):
    rules = [
        # The conversation of the second call holds the first reply and what was wrong with it.
        {"match": {"contains": "score"}, "reply": {"content": GOOD}},
        {"reply": {"content": BAD}},
    ]
    with simulated(*rules) as simulator:
        work = job(rows(1), simulator.url, tmp_path, output_type=Label, prices=A_DOLLAR_A_MILLION)
        done = await dispatched(work)
        first, second = simulator.arrivals()
    assert done.outcomes == {Outcome.OK: 1}
    (result,) = done.results
    assert (result.output, result.attempts) == ({"label": "ok", "score": 0.5}, 2)
    assert second.prompt_tokens > first.prompt_tokens
    # The longer conversation was counted, so that no limit is overrun by asking again.
    assert done.manifest.limits["granted_tokens"] >= first.tokens + second.tokens
    assert result.cost.usd * 10**6 == result.usage.total > first.prompt_tokens + second.prompt_tokens
    (failed,) = done.events.of(events.CallFailed)
    assert (failed.kind, failed.advice) == ("schema", "Retry")


@pytest.mark.parametrize(
    ("max_repairs", "max_attempts", "calls"), [(0, 5, 1), (1, 5, 2), (3, 5, 4), (3, 2, 2)]
)
async def test_asking_again_has_an_end(tmp_path: Path, max_repairs: int, max_attempts: int, calls: int):
    with simulated({"reply": {"content": BAD}}) as simulator:
        policy = {"max_repairs": max_repairs, "max_attempts": max_attempts}
        done = await dispatched(job(rows(1), simulator.url, tmp_path, output_type=Label, policy=policy))
        assert len(simulator.arrivals()) == calls
    assert done.outcomes == {Outcome.INVALID_OUTPUT: 1}
    (result,) = done.results
    assert (result.attempts, result.raw_output) == (calls, BAD)
    assert result.error.kind == "schema"


async def test_a_reply_stays_what_it_is_when_the_limit_has_no_room_to_ask_again(tmp_path: Path):
    with simulated({"reply": {"content": "no JSON " * 100}}) as simulator:
        extra = {"tokens_per_minute": 400, "window_s": 1.0}
        work = job(
            rows(1), simulator.url, tmp_path, output_type=Label, extra=extra, params={"max_tokens": 200}
        )
        done = await dispatched(work)
        assert len(simulator.arrivals()) == 1
    assert done.outcomes == {Outcome.INVALID_OUTPUT: 1}
    assert done.results[0].raw_output.startswith("no JSON")


async def test_json_in_a_fence_is_taken_as_it_is_and_said_so(tmp_path: Path):
    """P47."""
    with simulated({"reply": {"content": f"```json\n{GOOD}\n```"}}) as simulator:
        done = await dispatched(job(rows(1), simulator.url, tmp_path, output_type=Label))
        assert len(simulator.arrivals()) == 1
    assert done.outcomes == {Outcome.OK: 1}
    assert done.results[0].salvage == "fence"
