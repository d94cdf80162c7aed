"""Services that fail, refuse and break off: what a run makes of it, judged by the wire and by the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.results.folder import open_folder
from tests.engine.rehearsal import A_DOLLAR_A_MILLION, KEY, Done, Simulated, dispatched, job, rows, simulated

SLOW_DOWN = {
    "status": 429,
    "error": {"code": "rate_limit_exceeded", "type": "tokens", "message": "slow down"},
}


async def ran(folder: Path, simulator: Simulated, count: int = 1, **told: Any) -> Done:
    return await dispatched(job(rows(count), simulator.url, folder, **told))


async def test_every_item_has_its_row_and_its_call_is_in_the_account(tmp_path: Path):
    with simulated() as simulator:
        done = await ran(tmp_path, simulator, 40, prices=A_DOLLAR_A_MILLION)
        arrivals = simulator.arrivals()
    assert done.manifest.state == "complete"
    assert done.outcomes == {Outcome.OK: 40}
    assert len({arrival.sha for arrival in arrivals}) == len(arrivals) == 40
    for result in done.results:
        assert (result.attempts, result.finish_reason, result.served_model) == (1, "stop", "gpt-4o-mini")
        assert result.output
        assert result.request_id.startswith("req_")
        assert result.cost.usd * 10**6 == result.usage.total
        assert result.call_ms > 0
    assert done.manifest.usage.total == sum(result.usage.total for result in done.results)
    assert done.manifest.cost.usd == sum(result.cost.usd for result in done.results)
    assert done.manifest.count_drift == 1.0


async def test_one_429_holds_everybody_back_and_uses_no_try(tmp_path: Path):
    """P19."""
    slow_down = {**SLOW_DOWN, "headers": {"retry-after": "1.2"}}
    with simulated({"match": {"nth": 5}, "reply": slow_down}) as simulator:
        done = await ran(tmp_path, simulator, 12, policy={"max_attempts": 1}, extra={"max_in_flight": 1})
        arrivals = simulator.arrivals()
    assert done.outcomes == {Outcome.OK: 12}
    times = [arrival.time for arrival in arrivals]
    assert times[5] - times[4] >= 1.2
    assert len(arrivals) == 13
    (throttled,) = done.events.of(events.Throttled)
    assert throttled.delay_s == 1.2


async def test_five_429s_in_a_row_leave_all_tries_to_the_item(tmp_path: Path):
    """P19."""
    slow_down = {**SLOW_DOWN, "headers": {"retry-after-ms": "50"}}
    away = {"status": 503, "error": {"message": "away"}}
    with simulated(
        {"match": {"first": 5}, "reply": slow_down}, {"match": {"first": 1}, "reply": away}
    ) as simulator:
        done = await ran(tmp_path, simulator, policy={"max_attempts": 2})
    assert done.outcomes == {Outcome.OK: 1}
    assert done.results[0].attempts == 7


async def test_an_item_waits_no_longer_than_it_may(tmp_path: Path):
    slow_down = {**SLOW_DOWN, "headers": {"retry-after": "30"}}
    with simulated({"reply": slow_down}) as simulator:
        done = await ran(tmp_path, simulator, policy={"max_wait_s": 10.0})
        assert len(simulator.arrivals()) == 1
    assert done.outcomes == {Outcome.EXHAUSTED: 1}
    assert done.kinds == {"max_wait": 1}


async def test_an_item_waits_no_longer_than_it_may_for_a_limit_of_ours(tmp_path: Path):
    told = {"requests_per_minute": 1, "window_s": 60.0}
    with simulated() as simulator:
        done = await ran(tmp_path, simulator, 3, policy={"max_wait_s": 0.5}, extra=told)
        assert len(simulator.arrivals()) == 1
    assert done.outcomes == {Outcome.OK: 1, Outcome.EXHAUSTED: 2}
    assert done.kinds == {"max_wait": 2}


@pytest.mark.parametrize(
    ("reply", "double_paid"),
    [
        ({"status": 503, "error": {"message": "overloaded", "type": "server_error"}}, 1),
        ({"status": 408, "error": {"message": "slow"}}, 0),
        ({"status": 502, "body": "<html><h1>Bad gateway</h1></html>"}, 1),
        ({"status": 403, "body": "<html><h1>Not now</h1></html>"}, 0),
        ({"body": "<html>Please wait</html>"}, 1),
        ({"body": {"id": None, "choices": None, "usage": None}}, 1),
        ({"body": {"choices": None, "error": {"code": 502, "message": "upstream died"}}}, 1),
        ({"body": {"choices": []}}, 1),
        ({"reset": "before"}, 1),
        ({"reset": "after"}, 1),
        ({"half_body": True}, 1),
        ({"broken_gzip": True}, 1),
        ({"delay_s": 20}, 1),
    ],
    ids=str,
)
async def test_what_may_pass_is_tried_again(tmp_path: Path, reply: dict[str, Any], double_paid: int):
    """P28."""
    with simulated({"match": {"first": 1}, "reply": reply}) as simulator:
        done = await ran(tmp_path, simulator, extra={"timeout_s": 1.0})
        assert len(simulator.arrivals()) == 2
    assert done.outcomes == {Outcome.OK: 1}
    assert done.results[0].attempts == 2
    assert done.manifest.possible_double_paid == double_paid
    (failed,) = done.events.of(events.CallFailed)
    assert (failed.attempt, failed.advice) == (1, "Retry")


async def test_a_429_inside_a_200_is_a_429(tmp_path: Path):
    """P28."""
    body = {"choices": None, "error": {"code": 429, "message": "slow down"}}
    with simulated({"match": {"first": 1}, "reply": {"body": body}}) as simulator:
        done = await ran(tmp_path, simulator, policy={"max_attempts": 1})
    assert done.outcomes == {Outcome.OK: 1}


async def test_a_service_that_always_fails_is_called_exactly_as_often_as_said(tmp_path: Path):
    """P22."""
    with simulated({"reply": {"status": 500, "error": {"message": "no"}}}) as simulator:
        done = await ran(tmp_path, simulator, 2, policy={"max_attempts": 3})
        arrivals = simulator.arrivals()
    assert len(arrivals) == 6
    assert done.outcomes == {Outcome.EXHAUSTED: 2}
    assert [result.attempts for result in done.results] == [3, 3]
    failed = done.events.of(events.CallFailed)
    assert sorted((event.item_id, event.attempt) for event in failed) == [
        (item, attempt) for item in ("i0", "i1") for attempt in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("reply", "models"),
    [
        ({"status": 404, "error": {"message": "no such path"}}, ()),
        ({"status": 308, "headers": {"location": "/elsewhere"}, "body": ""}, ()),
        (None, ("another-model",)),
    ],
)
async def test_a_wrong_address_or_model_stops_the_run_and_names_both(tmp_path: Path, reply: Any, models: Any):
    rules = [{"reply": reply}] if reply else []
    with simulated(*rules, models=models, latency_s=0.05) as simulator:
        done = await ran(tmp_path, simulator, 200, extra={"max_in_flight": 5})
        assert len(simulator.arrivals()) <= 5
        assert done.outcomes == {Outcome.UNSENT: 200}
        assert (done.manifest.state, done.manifest.retryable) == ("stopped", False)
        for part in (simulator.url, "gpt-4o-mini"):
            assert part in done.manifest.reason
        simulator.play()
        # Somebody has mended the address; the model is another connection's.
        if not models:
            again = await ran(tmp_path, simulator, 200)
            assert again.outcomes == {Outcome.OK: 200}


async def test_a_refused_key_stops_the_run_and_is_named_by_its_id_only(tmp_path: Path):
    """P26, P90."""
    refused = {"status": 401, "error": {"message": "wrong key"}, "echo_authorization": True}
    with simulated({"match": {"contains": ""}, "reply": refused}, latency_s=0.05) as simulator:
        extra = {"max_in_flight": 4, "credential_id": "team-key"}
        done = await ran(tmp_path, simulator, 100, extra=extra)
        assert len(simulator.arrivals()) <= 4
        assert done.outcomes == {Outcome.UNSENT: 100}
        assert "'team-key'" in done.manifest.reason
        simulator.play()
        again = await ran(tmp_path, simulator, 100, extra=extra)
    assert again.outcomes == {Outcome.OK: 100}
    seen = [done.manifest.to_json(), done.events.seen, again.events.seen, done.notes]
    folder = open_folder(str(tmp_path / "results"))
    for name in folder.names():
        with folder.open(name) as file:
            seen.append(file.read())
    assert KEY not in str(seen)


async def test_an_empty_account_is_called_once(tmp_path: Path):
    """P20."""
    empty = {"message": "no credit left", "type": "insufficient_quota", "code": "insufficient_quota"}
    with simulated({"reply": {"status": 429, "error": empty}}) as simulator:
        done = await ran(tmp_path, simulator, 50, extra={"max_in_flight": 1})
        assert len(simulator.arrivals()) == 1
    assert done.outcomes == {Outcome.UNSENT: 50}
    assert "no credit left" in done.manifest.reason


@pytest.mark.parametrize("where", ["request", "reply"])
async def test_a_filter_ends_the_item_with_its_reason_and_the_rest_goes_on(tmp_path: Path, where: str):
    """P40."""
    with simulated({"match": {"contains": "row 0001"}, "reply": {"content_filter": where}}) as simulator:
        done = await ran(tmp_path, simulator, 3)
        assert len(simulator.arrivals()) == 3
    assert done.outcomes == {Outcome.OK: 2, Outcome.CONTENT_FILTERED: 1}
    assert done.results[1].error.kind == "content_filter"
    assert done.results[1].outcome.is_reviewable


async def test_a_model_that_says_nothing_is_asked_once_more_and_its_endpoint_is_not_to_blame(tmp_path: Path):
    with simulated({"match": {"contains": "row 000"}, "reply": {"content": ""}}) as simulator:
        done = await ran(tmp_path, simulator, 15, policy={"park_over_s": 0.0})
        assert len(simulator.arrivals()) == 25
    assert done.outcomes == {Outcome.INVALID_OUTPUT: 10, Outcome.OK: 5}
    assert {row.error.kind for row in done.results if row.error} == {"empty"}
    assert done.events.of(events.Parked) == []


async def test_a_refusal_is_kept_for_review(tmp_path: Path):
    with simulated({"reply": {"refusal": "I can't help with that."}}) as simulator:
        done = await ran(tmp_path, simulator)
        assert len(simulator.arrivals()) == 1
    assert done.outcomes == {Outcome.REFUSED: 1}
    assert done.results[0].raw_output == "I can't help with that."
    # What a model says may quote what it was asked, and so is not for the log.
    assert "help with that" not in str(done.events.seen)


async def test_a_cut_reply_is_asked_for_once_more_with_a_larger_cap(tmp_path: Path):
    """P43."""
    with simulated({"match": {"first": 1}, "reply": {"truncate": True}}) as simulator:
        done = await ran(tmp_path, simulator)
        first, second = simulator.arrivals()
    assert done.outcomes == {Outcome.OK: 1}
    assert first.sha != second.sha
    assert second.tokens - first.tokens == 300


async def test_a_reply_that_is_cut_twice_is_truncated_and_kept(tmp_path: Path):
    """P43, P45."""
    with simulated({"reply": {"truncate": True}}) as simulator:
        done = await ran(tmp_path, simulator)
        assert len(simulator.arrivals()) == 2
    assert done.outcomes == {Outcome.TRUNCATED: 1}
    assert done.results[0].raw_output
    assert done.results[0].output is None
    assert done.results[0].attempts == 2


async def test_a_cap_spent_on_reasoning_is_named_and_booked(tmp_path: Path):
    """P45."""
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 512,
        "total_tokens": 532,
        "completion_tokens_details": {"reasoning_tokens": 512},
    }
    reply = {"content": None, "finish_reason": "length", "usage": usage}
    with simulated({"reply": reply}) as simulator:
        done = await ran(tmp_path, simulator)
    assert done.kinds == {"truncated_by_reasoning": 1}
    assert done.results[0].usage.reasoning == 1024


async def test_a_parameter_that_a_model_does_not_take_costs_a_few_calls_and_not_one_per_item(tmp_path: Path):
    """P38."""
    unsupported = {"code": "unsupported_parameter", "param": "max_tokens", "message": "not with this model"}
    rule = {"match": {"param": "max_tokens"}, "reply": {"status": 400, "error": unsupported}}
    with simulated(rule, latency_s=0.02) as simulator:
        done = await ran(tmp_path, simulator, 200, extra={"max_in_flight": 5})
        refused = [arrival for arrival in simulator.arrivals() if arrival.status == 400]
    assert done.outcomes == {Outcome.OK: 200}
    assert 1 <= len(refused) <= 5
    (rewritten,) = done.events.of(events.Rewritten)
    assert (rewritten.drop, rewritten.rename_to) == ("max_tokens", "max_completion_tokens")


async def test_a_cap_under_neither_name_ends_without_a_loop(tmp_path: Path):
    """P38."""
    rules = [
        {
            "match": {"param": name},
            "reply": {
                "status": 400,
                "error": {"code": "unsupported_parameter", "param": name, "message": "no"},
            },
        }
        for name in ("max_tokens", "max_completion_tokens")
    ]
    with simulated(*rules) as simulator:
        done = await ran(tmp_path, simulator)
        assert len(simulator.arrivals()) == 2
    assert done.outcomes == {Outcome.BAD_REQUEST: 1}


@pytest.mark.parametrize("usage", ["missing", None, {"total_tokens": 33}])
async def test_a_reply_without_usage_is_kept_and_its_tokens_are_estimated(tmp_path: Path, usage: Any):
    """P36."""
    with simulated({"reply": {"usage": usage}}) as simulator:
        done = await ran(tmp_path, simulator, prices=A_DOLLAR_A_MILLION)
    result = done.results[0]
    assert result.outcome is Outcome.OK
    assert result.usage.estimated
    assert result.usage.prompt > 10
    assert result.usage.completion > 10
    assert result.cost.usd > 0
    assert done.manifest.usage.estimated


async def test_the_first_items_that_all_fail_alike_stop_the_run(tmp_path: Path):
    with simulated({"reply": {"status": 400, "error": {"code": "odd", "message": "no"}}}) as simulator:
        done = await ran(tmp_path, simulator, 300, policy={"fail_fast": 10}, extra={"max_in_flight": 2})
        assert len(simulator.arrivals()) <= 12
    assert done.manifest.state == "stopped"
    assert done.outcomes[Outcome.BAD_REQUEST] <= 12
    assert done.outcomes[Outcome.UNSENT] >= 288
    assert "first 10 finished items all ended bad_request" in done.manifest.reason


async def test_an_item_that_is_too_long_for_the_model_fails_alone(tmp_path: Path):
    """P76."""
    texts = [{"id": f"i{n}", "prompt": "word " * (2000 if n == 7 else 5)} for n in range(20)]
    with simulated(model_window=1000) as simulator:
        done = await dispatched(job(texts, simulator.url, tmp_path, params={"max_tokens": 100}))
    assert done.outcomes == {Outcome.OK: 19, Outcome.TOO_LONG: 1}
    assert done.results[7].outcome is Outcome.TOO_LONG
    assert done.results[7].attempts == 1


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ({"status": 413, "body": "<html>Request Entity Too Large</html>"}, Outcome.TOO_LONG),
        (
            {"status": 429, "error": {"message": "Request too large: Limit 100, Requested 500."}},
            Outcome.TOO_LONG,
        ),
        (
            {"status": 400, "error": {"code": "context_length_exceeded", "message": "too many tokens"}},
            Outcome.TOO_LONG,
        ),
        ({"status": 422, "error": {"message": "messages[0] is odd"}}, Outcome.BAD_REQUEST),
        ({"status": 400, "error": {"message": "no such tool"}}, Outcome.BAD_REQUEST),
    ],
    ids=str,
)
async def test_what_no_retry_helps_is_called_once(tmp_path: Path, reply: dict[str, Any], outcome: Outcome):
    with simulated({"match": {}, "reply": reply}) as simulator:
        done = await ran(tmp_path, simulator)
        assert len(simulator.arrivals()) == 1
    assert done.outcomes == {outcome: 1}


@pytest.mark.parametrize("status", [429, 529])
async def test_a_service_that_is_too_busy_uses_no_try(tmp_path: Path, status: int):
    busy = {"status": status, "error": {"message": "overloaded"}, "headers": {"retry-after-ms": "20"}}
    with simulated({"match": {"first": 3}, "reply": busy}) as simulator:
        done = await ran(tmp_path, simulator, policy={"max_attempts": 1})
        assert len(simulator.arrivals()) == 4
    assert done.outcomes == {Outcome.OK: 1}
