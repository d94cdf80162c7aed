"""From rows that failed over what a person decides to rows again, against a simulator."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.review.decision import Wish
from airflow_provider_llmbatch.engine.state.redis import RedisState, connect
from airflow_provider_llmbatch.errors import InputError, StoppedError
from tests.engine.rehearsal import Simulated, dispatched, job, rows, simulated
from tests.engine.reviews import Review, failing
from tests.services.redis_server import running

WORD = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}
GOOD = json.dumps({"word": "yes"})


async def reviewed(path: Path, simulator: Simulated, count: int = 6, **told: Any) -> Review:
    """Dispatch, and return the review of what came of it."""
    given = {"output_type": WORD, "policy": {"max_attempts": 1}, **told}
    work = job(rows(count), simulator.url, path, **given)
    done = await dispatched(work)
    return Review(work, done.manifest, path / "review")


def replies(numbers: Any, content: str) -> list[dict[str, Any]]:
    return failing(numbers, reply={"content": content})


ALL_GOOD = {"match": {}, "reply": {"content": GOOD}}


async def test_each_kind_of_decision_becomes_one_row_and_only_retries_are_sent(tmp_path):
    rules = [
        *replies(range(4), '{"word": 1}'),
        *failing([4], reply={"truncate": True, "content": GOOD}),
        ALL_GOOD,
    ]
    with simulated(*rules) as simulator:
        review = await reviewed(tmp_path, simulator)
        assert review.outcomes == ["invalid_output"] * 4 + ["truncated", "ok"]
        round = review.open()
        assert [ticket.index for ticket in round.tickets.values()] == [0, 1, 2, 3, 4]
        sent, paid = len(simulator.arrivals()), review.manifest.usage.total
        review.decide(Wish(kind="edit", output={"word": "mine"}), 0)
        review.decide("skip", 1)
        review.decide("retry", 2, 3)
        assert review.decide("accept", 4).refused
        simulator.play(ALL_GOOD)
        manifest = await review.carry_out()
        assert len(simulator.arrivals()) - sent == 2
    assert review.outcomes == ["edited", "skipped", "ok", "ok", "truncated", "ok"]
    edited, skipped, again = review.rows[:3]
    assert (edited.output, edited.raw_output, edited.error) == ({"word": "mine"}, '{"word": 1}', None)
    assert (skipped.output, skipped.raw_output) == (None, '{"word": 1}')
    assert skipped.error.kind == "schema"
    assert [row.round for row in review.rows] == [1, 1, 1, 1, 0, 0]
    assert edited.usage.total > 0
    assert again.output == {"word": "yes"}
    assert manifest.usage.total > paid
    assert manifest.fingerprint == review.manifest.fingerprint


async def test_what_was_said_is_accepted_where_it_satisfies_the_schema(tmp_path):
    """A reply that was cut at the cap is truncated, whatever it holds; a person sees that it is whole."""
    rules = [{"match": {}, "reply": {"content": GOOD, "finish_reason": "length"}}]
    with simulated(*rules) as simulator:
        review = await reviewed(tmp_path, simulator, 2)
        assert review.outcomes == ["truncated"] * 2
        review.open()
        assert review.decide("accept", 0).decided
        await review.carry_out()
    assert review.outcomes == ["accepted", "truncated"]
    assert review.rows[0].output == {"word": "yes"}


async def test_a_retry_asks_with_the_model_the_prompt_and_the_cap_that_were_decided(tmp_path):
    with simulated(*replies(range(3), "no json")) as simulator:
        review = await reviewed(tmp_path, simulator, 4)
        review.open()
        review.decide(Wish(kind="retry", model="other-model"), 0)
        review.decide(Wish(kind="retry", prompt="inline@2"), 1)
        review.decide(Wish(kind="retry", max_tokens=77), 2)
        simulator.play(
            {"match": {"model": "other-model"}, "reply": {"content": '{"word": "other"}'}},
            {"match": {"contains": "Second attempt"}, "reply": {"content": '{"word": "second"}'}},
            ALL_GOOD,
        )
        await review.carry_out()
        capped = [arrival.tokens - arrival.prompt_tokens for arrival in simulator.arrivals()[-3:]]
    assert [row.output["word"] for row in review.rows[:3]] == ["other", "second", "yes"]
    assert sorted(capped) == [77, 300, 300]
    assert review.rows[1].prompt.version != review.rows[2].prompt.version
    assert str(review.manifest.prompt) == str(review.rows[2].prompt)
    assert review.manifest.model == review.job.model


async def test_an_item_with_a_cap_of_its_own_gets_the_decided_one(tmp_path):
    source = [{"id": "i", "vars": {"text": "row 0000"}, "params": {"max_tokens": 20}}]
    with simulated(*replies([0], "no json")) as simulator:
        work = job(source, simulator.url, tmp_path, output_type=WORD, policy={"max_attempts": 1})
        done = await dispatched(work)
        review = Review(work, done.manifest, tmp_path / "review")
        review.open()
        review.decide(Wish(kind="retry", max_tokens=90))
        await review.carry_out()
        arrivals = simulator.arrivals()
        assert [arrival.tokens - arrival.prompt_tokens for arrival in arrivals] == [20, 90]


async def test_carrying_out_twice_writes_and_sends_nothing_more(tmp_path):
    with simulated(*replies(range(4), "no json"), ALL_GOOD) as simulator:
        review = await reviewed(tmp_path, simulator, 5)
        review.open()
        review.decide(Wish(kind="edit", output={"word": "mine"}), 0)
        review.decide("skip", 1)
        review.decide("retry", 2, 3)
        simulator.play(ALL_GOOD)
        first = await review.carry_out()
        before, arrivals = review.rows, len(simulator.arrivals())
        again = await Review(review.job, first, review.folder).carry_out()
        assert len(simulator.arrivals()) == arrivals
    assert review.rows == before
    assert (again.counts, again.usage) == (first.counts, first.usage)


async def test_a_review_that_is_cut_off_goes_on_with_the_items_that_are_left(tmp_path):
    slow = {"match": {}, "reply": {"content": GOOD, "delay_s": 0.2}}
    with simulated(*replies(range(12), "no json")) as simulator:
        review = await reviewed(tmp_path, simulator, 12, extra={"max_in_flight": 2})
        review.open()
        review.decide(Wish(kind="edit", output={"word": "mine"}), 0)
        review.decide("retry")
        simulator.play(slow)
        sent = len(simulator.arrivals())
        cut = asyncio.create_task(review.carry_out())
        while len(simulator.arrivals()) < sent + 5:
            await asyncio.sleep(0.01)
        cut.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut
        await Review(review.job, review.manifest, review.folder).carry_out()
        # Eleven, and at most the two that were in flight once more.
        assert 11 <= len(simulator.arrivals()) - sent <= 13
    assert review.outcomes == ["edited"] + ["ok"] * 11


async def test_a_further_round_asks_only_about_what_was_decided_and_still_fails(tmp_path):
    with simulated(*replies(range(5), "no json"), ALL_GOOD) as simulator:
        review = await reviewed(tmp_path, simulator)
        review.open()
        review.decide("retry", 0, 1)
        review.decide("skip", 2)
        simulator.play(*replies([1], "still none"), ALL_GOOD)
        await review.carry_out()
        assert review.outcomes == [
            "ok",
            "invalid_output",
            "skipped",
            "invalid_output",
            "invalid_output",
            "ok",
        ]
        second = review.open()
        assert [ticket.index for ticket in second.tickets.values()] == [1]
        assert second.level == 2
        review.decide(Wish(kind="edit", output={"word": "mine"}))
        await review.carry_out()
    assert review.rows[1].outcome is Outcome.EDITED
    assert review.rows[1].round == 2


async def test_what_a_cleared_dispatch_has_mended_is_not_overwritten(tmp_path):
    with simulated(*failing(range(3), reply={"status": 503}), *replies([3], "no json")) as simulator:
        review = await reviewed(tmp_path, simulator, 4)
        assert review.outcomes == ["exhausted"] * 3 + ["invalid_output"]
        review.open()
        review.decide("skip", 0, 3)
        review.decide("retry", 1, 2)
        simulator.play(*failing([2], reply={"status": 503}), ALL_GOOD)
        await dispatched(review.job)
        assert review.outcomes == ["ok", "ok", "exhausted", "invalid_output"]
        sent = len(simulator.arrivals())
        simulator.play(ALL_GOOD)
        await review.carry_out()
        assert len(simulator.arrivals()) - sent == 1
    assert review.outcomes == ["ok", "ok", "ok", "skipped"]


async def test_a_dispatch_that_is_cleared_after_a_review_pays_only_for_rows_that_count(tmp_path):
    with simulated(*failing(range(3), reply={"status": 503}), ALL_GOOD) as simulator:
        review = await reviewed(tmp_path, simulator, 4)
        review.open()
        review.decide("skip", 0)
        review.decide("retry", 1, 2)
        await review.carry_out()
        assert review.outcomes == ["skipped", "exhausted", "exhausted", "ok"]
        simulator.play(ALL_GOOD)
        sent = len(simulator.arrivals())
        done = await dispatched(review.job)
        assert len(simulator.arrivals()) - sent == 2
    assert [row.outcome.value for row in done.results] == ["skipped", "ok", "ok", "ok"]


async def test_a_turn_of_a_chain_is_sent_again_with_the_turns_before_it(tmp_path):
    turns = [{"id": f"t{n}", "prompt": f"turn {n}.", "group": "g", "seq": n} for n in range(4)]
    with simulated({"match": {"contains": "turn 2"}, "reply": {"refusal": "No."}}) as simulator:
        work = job(turns, simulator.url, tmp_path, policy={"max_attempts": 1})
        done = await dispatched(work)
        review = Review(work, done.manifest, tmp_path / "review")
        assert review.outcomes == ["ok", "ok", "refused", "unsent"]
        review.open()
        sent = len(simulator.arrivals())
        simulator.play({"match": {"contains": "turn 0"}, "reply": {"content": "said after all"}})
        review.decide("retry")
        await review.carry_out()
        assert len(simulator.arrivals()) - sent == 2
    assert review.outcomes == ["ok"] * 4
    assert review.rows[3].output == "said after all"


async def test_an_edit_that_the_type_itself_refuses_is_left_and_told(tmp_path):
    """A pydantic validator is not in the JSON schema that the API server checks against."""
    with simulated(*replies([0], "no json"), ALL_GOOD) as simulator:
        review = await reviewed(
            tmp_path, simulator, 2, output_type="tests.engine.review.short_word:ShortWord"
        )
        review.open()
        review.decide(Wish(kind="edit", output={"word": "far too long"}))
        await review.carry_out()
    assert review.outcomes == ["invalid_output", "ok"]
    assert "the decision to edit was left" in review.notes[-1]
    assert [ticket.index for ticket in review.open().tickets.values()] == [0]


async def test_uncertain_rows_and_a_sample_are_looked_at_and_kept_or_given_up(tmp_path):
    with simulated(ALL_GOOD) as simulator:
        review = await reviewed(tmp_path, simulator, 30)
        round = review.open(uncertain='output.word == "yes" && attempts > 1', sample=0.5)
        chosen = [ticket.index for ticket in round.tickets.values()]
        assert 3 < len(chosen) < 27
        assert {ticket.reason for ticket in round.tickets.values()} == {"sample"}
        assert review.decide("accept", *chosen[:2]).decided
        review.decide("skip", chosen[2])
        await review.carry_out()
    assert [review.outcomes[index] for index in chosen[:4]] == ["accepted", "accepted", "skipped", "ok"]
    assert review.rows[chosen[2]].output is None
    assert review.rows[chosen[2]].raw_output == '{"word": "yes"}'


async def test_a_ticket_shows_what_was_asked_and_what_came_back(tmp_path):
    with simulated(*replies([1], "no json"), ALL_GOOD) as simulator:
        review = await reviewed(tmp_path, simulator, 3)
        round = review.open()
    texts = round.texts(round.tickets["0-1"])
    assert texts["item"] == {"id": "i1", "vars": {"text": "row 0001"}}
    assert texts["messages"][-1] == {"role": "user", "content": "Say something about row 0001."}
    assert texts["row"]["raw_output"] == "no json"


async def test_opening_twice_leads_to_one_round(tmp_path):
    with simulated(*replies([1], "no json"), ALL_GOOD) as simulator:
        review = await reviewed(tmp_path, simulator, 3)
        other = Review(review.job, review.manifest, review.folder)
        assert list(review.open().tickets) == list(other.open().tickets) == ["0-1"]
    assert len([name for name in review.queue.storage.names() if name.startswith("round-")]) == 1


@pytest.mark.parametrize(
    "changed", [{"model": "m-2"}, {"user": "{{ text }}?"}, {"params": {"max_tokens": 5}}]
)
async def test_results_of_another_question_are_not_reviewed(tmp_path, changed):
    with simulated(ALL_GOOD) as simulator:
        review = await reviewed(tmp_path, simulator, 2)
        told = {"output_type": WORD, **changed}
        with pytest.raises(InputError, match="answer another input"):
            Review(job(rows(2), simulator.url, tmp_path, **told), review.manifest, review.folder).open()


async def test_a_service_that_refuses_the_key_stops_the_review_and_keeps_the_decisions(tmp_path):
    with simulated(*replies([0, 1], "no json"), ALL_GOOD) as simulator:
        review = await reviewed(tmp_path, simulator, 3)
        review.open()
        review.decide("retry", 0)
        review.decide("skip", 1)
        simulator.play({"match": {}, "reply": {"status": 401, "error": {"code": "invalid_api_key"}}})
        with pytest.raises(StoppedError):
            await review.carry_out()
        simulator.play(ALL_GOOD)
        await Review(review.job, review.manifest, review.folder).carry_out()
    assert review.outcomes == ["ok", "skipped", "ok"]


async def test_a_redis_that_forgets_and_restarts_costs_no_decision(tmp_path):
    """Between the decisions and their carrying out, and in the middle of it."""
    slow = {"match": {}, "reply": {"content": GOOD, "delay_s": 0.1}}
    with running(tmp_path) as redis, simulated(*replies(range(12), "no json")) as simulator:
        state = RedisState(connect(redis.url))
        review = await reviewed(tmp_path, simulator, 12, extra={"max_in_flight": 2})
        review.state = state
        review.open()
        review.decide("skip", 0)
        review.decide("retry")
        redis.cli("flushall")
        simulator.play(slow)
        sent = len(simulator.arrivals())
        task = asyncio.create_task(review.carry_out())
        while len(simulator.arrivals()) < sent + 4:
            await asyncio.sleep(0.01)
        redis.kill()
        redis.start()
        redis.cli("flushall")
        await task
        await state.close()
        assert len(simulator.arrivals()) - sent == 11
    assert review.outcomes == ["skipped"] + ["ok"] * 11
