"""A dispatch task from its arguments to its manifest, rows and link."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal

import pytest
from airflow.sdk.exceptions import AirflowFailException
from pydantic import BaseModel

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.errors import EndpointError
from airflow_provider_llmbatch.operators.progress import progress_of
from airflow_provider_llmbatch.settings import load_settings

NAMED = """
system: You are terse.
user: "Say {{ text }}"
params: {max_tokens: 20}
"""


class Word(BaseModel):
    """What the replies are."""

    word: str


def test_a_source_becomes_rows_in_order_and_a_small_manifest_that_adds_up(stage):
    value = stage.run(stage.dispatch(source=stage.items(12)))
    assert value["counts"] == {"ok": 12}
    assert value["state"] == "complete"
    assert len(json.dumps(value)) < 8192
    assert [(row.id, str(row.outcome)) for row in stage.rows()] == [(f"i{n}", "ok") for n in range(12)]
    assert len(stage.service.arrivals()) == 12


def test_the_manifest_lies_beside_the_rows_and_says_what_the_task_returned(stage):
    value = stage.run(stage.dispatch(source=stage.items(2)))
    stored = json.loads((stage.results_path / "d" / "r" / "t" / "manifest-00000.json").read_text())
    assert Manifest.from_json(stored) == Manifest.from_json(value)


def test_a_named_prompt_is_found_beside_the_dag_file_and_a_schema_is_asked_for(stage):
    stage.write("prompts/say/2.yaml", NAMED)
    value = stage.run(stage.dispatch(source=stage.items(3), prompt="say@2", output_type=Word))
    assert value["prompt"]["name"] == "say"
    assert value["prompt"]["version"] == "2"
    assert all(set(row.output) == {"word"} for row in stage.rows())


def test_rows_of_an_earlier_task_are_dispatched_as_they_are(stage):
    rows = [
        {"id": "x", "vars": {"text": "{{ params.word }} {% raw %}"}},
        {"prompt": "{{ var.value.secret }}"},
    ]
    task = stage.dispatch(source=rows)
    assert stage.run(task)["counts"] == {"ok": 2}
    assert rows[1] == {"prompt": "{{ var.value.secret }}"}
    # What Airflow stores of the rendered field.
    assert str(task.source) == "2 rows"


@pytest.mark.parametrize("conn_type", ["openai", "pydanticai"])
def test_connections_of_other_providers_work_as_they_stand(stage, connect, conn_type):
    connect(stage.service.url, conn_type=conn_type)
    assert stage.run(stage.dispatch(source=stage.items(2)))["counts"] == {"ok": 2}


def test_a_mapping_of_a_template_is_taken_from_its_text(stage):
    params = '{"max_tokens": {{ params.five }}}'
    stage.run(stage.dispatch(source=stage.items(1), model_params=params, max_failed=1))
    assert stage.rows()[0].finish_reason == "length"


def test_the_link_is_there_before_anything_is_sent_and_leads_to_the_mapped_instance(stage):
    with pytest.raises(AirflowFailException, match="does not exist"):
        stage.run(stage.dispatch(source="/nowhere.jsonl"), map_index=3)
    assert stage.instance.xcoms == {
        "_link_LLMBatchReportLink": "/llmbatch/dags/d/runs/r/tasks/t/report?map_index=3"
    }


def test_mapped_instances_without_a_plan_keep_their_results_apart(stage):
    one = stage.run(stage.dispatch(source=stage.items(1, "a.jsonl")), map_index=0)
    two = stage.run(stage.dispatch(source=stage.items(2, "b.jsonl")), map_index=1)
    assert one["result_path"].endswith("/d/r/t/0")
    assert two["result_path"].endswith("/d/r/t/1")
    assert (one["items"], two["items"]) == (1, 2)


def test_a_second_try_sends_only_what_the_first_left(stage):
    """P78."""
    stage.service.play({"match": {"contains": "number 3"}, "reply": {"status": 503}})
    with pytest.raises(EndpointError, match="1 of 5 items failed"):
        stage.run(stage.dispatch(source=stage.items(5), max_attempts=1, max_failed=0))
    assert stage.instance.xcoms["return_value"]["counts"] == {"ok": 4, "exhausted": 1}
    stage.service.play()
    value = stage.run(stage.dispatch(source=stage.items(5), max_attempts=1, max_failed=0), try_number=2)
    assert value["counts"] == {"ok": 5}
    assert value["resumed"] == 4
    assert len(stage.service.arrivals()) == 6


@pytest.mark.parametrize(
    ("on_existing", "arrivals", "error"),
    [("resume", 2, None), ("restart", 4, None), ("fail", 2, "on_existing is 'fail'")],
)
def test_a_cleared_task_does_with_its_results_what_it_was_told(stage, on_existing, arrivals, error):
    stage.run(stage.dispatch(source=stage.items(2)))
    again = stage.dispatch(source=stage.items(2), on_existing=on_existing)
    if error:
        with pytest.raises(AirflowFailException, match=error):
            stage.run(again, try_number=2, max_tries=2)
    else:
        assert stage.run(again, try_number=2, max_tries=2)["counts"] == {"ok": 2}
    assert len(stage.service.arrivals()) == arrivals


def test_too_many_failures_that_a_retry_cannot_help_fail_at_once_and_name_the_commonest(stage):
    stage.service.play(
        {"match": {"contains": "number 1"}, "reply": {"status": 400, "error": {"message": "no such thing"}}}
    )
    with pytest.raises(AirflowFailException) as failed:
        stage.run(stage.dispatch(source=stage.items(4)))
    message = str(failed.value)
    assert "1 of 4 items failed, more than max_failed=0.1 allows: 1 bad_request, 3 ok." in message
    assert "Most failed calls: 1 x http 400: no such thing — The service rejects the request" in message
    assert "The first: item 'i1' (number 1) ended bad_request: HTTP 400: no such thing" in message
    assert "raise max_failed" in message
    assert stage.instance.xcoms["return_value"]["state"] == "complete"


def test_a_few_failures_are_rows_and_not_a_failed_task(stage):
    stage.service.play({"match": {"contains": "number 1"}, "reply": {"status": 400}})
    value = stage.run(stage.dispatch(source=stage.items(4), max_failed=0.25))
    assert value["counts"] == {"ok": 3, "bad_request": 1}


def test_a_stop_that_a_person_must_mend_is_not_retried(stage):
    stage.service.play({"reply": {"status": 401, "error": {"code": "invalid_api_key", "message": "revoked"}}})
    with pytest.raises(AirflowFailException) as failed:
        stage.run(stage.dispatch(source=stage.items(3)))
    message = str(failed.value)
    assert "No credential is left" in message
    assert "HTTP 401: revoked" in message
    assert "So far: 3 unsent." in message
    assert "x http 401 invalid_api_key: revoked — The key is wrong or was revoked: check the" in message
    assert "clear the task to go on" in message


def test_a_budget_that_is_spent_stops_and_the_rest_stays_unsent(stage, connect):
    prices = {"m-1": {"input": "1000", "output": "1000"}}
    connect(stage.service.url, prices=prices, concurrency=1)
    task = stage.dispatch(source=stage.items(30), model_params={"max_tokens": 100}, budget_usd="0.5")
    with pytest.raises(AirflowFailException, match=r"The budget .* is spent\. So far: "):
        stage.run(task)
    manifest = Manifest.from_json(stage.instance.xcoms["return_value"])
    assert 0 < manifest.good < 30
    assert manifest.cost.usd <= Decimal("0.5")
    assert sum(row.attempts for row in stage.rows()) == len(stage.service.arrivals())
    (told,) = progress_of(load_settings(), "d", "r")
    (part,) = told.parts
    assert (told.task_id, told.budget_usd, part.state) == (task.task_id, Decimal("0.5"), "stopped")
    assert (part.items, part.done, part.usd) == (30, manifest.good, manifest.cost.usd)
    assert max(part.use.values()) > 0.7


def test_a_cut_reply_that_the_budget_does_not_let_grow_stays_and_is_truncated(stage, connect):
    stage.service.play({"reply": {"truncate": True}})
    connect(stage.service.url, prices={"m-1": {"input": "0", "output": "1000"}}, concurrency=1)
    task = stage.dispatch(source=stage.items(1), model_params={"max_tokens": 100}, budget_usd="0.2")
    with pytest.raises(AirflowFailException, match="1 truncated"):
        stage.run(task)
    (row,) = stage.rows()
    assert row.outcome is Outcome.TRUNCATED
    assert row.raw_output
    assert row.attempts == len(stage.service.arrivals()) == 1


def test_a_task_without_retries_is_warned_of_a_kill(stage, capsys):
    stage.run(stage.dispatch(source=stage.items(1), retries=0))
    told = capsys.readouterr().out
    assert told.count("retries is 0: should its worker be killed") == 1
    assert "default_args={'retries': 3}" in told


@pytest.mark.parametrize(("reuse", "arrivals"), [("True", 3), (True, 3), (False, 6)])
def test_a_question_that_another_task_has_paid_for_is_answered_from_its_rows(stage, reuse, arrivals):
    texts = [{"prompt": f"question {n}"} for n in range(3)]
    first = stage.run(stage.dispatch(task_id="a", source=texts, reuse=reuse))
    second = stage.run(stage.dispatch(task_id="b", source=texts, reuse=reuse))
    assert (first["counts"], second["counts"]) == ({"ok": 3}, {"ok": 3})
    assert len(stage.service.arrivals()) == arrivals


def test_a_priority_that_is_none_is_refused_before_anything_is_sent(stage):
    with pytest.raises(AirflowFailException, match="priority is 'high'; set it to one of normal, low"):
        stage.run(stage.dispatch(source=stage.items(1), priority="high"))
    assert stage.run(stage.dispatch(source=stage.items(1), priority="low"))["counts"] == {"ok": 1}


def test_two_tasks_run_at_once_in_one_process_and_inside_of_a_loop(stage):
    async def both():
        one, two = stage.dispatch(source=stage.items(20)), stage.dispatch(task_id="u", source=stage.items(20))
        return await asyncio.gather(asyncio.to_thread(stage.run, one), asyncio.to_thread(stage.run, two))

    async def inside():
        return stage.run(stage.dispatch(task_id="v", source=stage.items(3)))

    assert [value["counts"] for value in asyncio.run(both())] == [{"ok": 20}, {"ok": 20}]
    assert asyncio.run(inside())["counts"] == {"ok": 3}
    assert len(stage.service.arrivals()) == 43
