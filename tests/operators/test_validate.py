from __future__ import annotations

import json

import pytest
from airflow.sdk.exceptions import AirflowFailException
from pydantic import BaseModel, Field

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.operators.validate import LLMBatchValidateOperator

LOOSE = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}


class Sure(BaseModel):
    score: float = Field(ge=0, le=1)


class Never(BaseModel):
    score: float = Field(ge=2, le=1000)


def validate(stage, *, map_index=-1, **arguments):
    given = {"task_id": "v", "dag": stage.dag(), "output_type": Sure, "max_failed": 1.0}
    return stage.run(LLMBatchValidateOperator(**{**given, **arguments}), map_index=map_index)


def scores(stage, *given):
    """Let the service answer with these scores, one item after the other, and return the manifest."""
    rules = [
        {"match": {"contains": f"number {place}"}, "reply": {"content": json.dumps({"score": score})}}
        for place, score in enumerate(given)
    ]
    stage.service.play(*rules)
    return stage.run(stage.dispatch(source=stage.items(len(given)), output_type=LOOSE))


def test_results_are_checked_against_another_schema_without_a_call(stage):
    manifest = scores(stage, 0.5, 7, 1)
    calls = len(stage.service.arrivals())
    checked = validate(stage, manifest=manifest)
    assert len(stage.service.arrivals()) == calls
    assert checked["counts"] == {"ok": 2, "invalid_output": 1}
    assert checked["usage"]["prompt"] == 0
    assert checked["result_path"] != manifest["result_path"]
    found = stage.rows("v")
    assert [row.outcome for row in found] == [Outcome.OK, Outcome.INVALID_OUTPUT, Outcome.OK]
    assert [row.usage for row in found] == [row.usage for row in stage.rows("t")]
    assert [row.outcome for row in stage.rows("t")] == [Outcome.OK] * 3


def test_a_folder_can_be_checked_by_its_path_and_checked_again(stage):
    manifest = scores(stage, 0.5, 7)
    first = validate(stage, path=manifest["result_path"])
    again = validate(stage, path=manifest["result_path"])
    assert first["counts"] == again["counts"] == {"ok": 1, "invalid_output": 1}


def test_each_chunk_keeps_its_manifest_however_many_tasks_check(stage):
    chunks = stage.run(stage.split(source=stage.items(6), token_budget=60, max_chunks=3))
    manifests = [stage.run(stage.dispatch(chunk=c), map_index=place) for place, c in enumerate(chunks)]
    together = validate(stage, manifest=manifests, output_type=None, task_id="together")
    for place, one in enumerate(manifests):
        apart = validate(stage, manifest=one, output_type=None, map_index=place)
        assert (apart["chunk"], apart["items"]) == (one["chunk"], one["items"])
        assert together[place]["counts"] == apart["counts"]
    assert [row.id for row in stage.rows("v")] == [f"i{number}" for number in range(6)]


def test_rows_of_a_common_ai_batch_are_checked_by_its_manifest(stage):
    usual = {"output": None, "raw_output": None, "error": None, "model": "m", "finish_reason": "stop"}
    rows = [
        {"custom_id": "k-1", "index": 1, "status": "success", **usual, "output": {"score": 9}, "usage": None},
        {"custom_id": "k-0", "index": 0, "status": "success", **usual, "output": {"score": 1}, "usage": None},
    ]
    path = stage.write("landed.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    theirs = {"schema_version": 1, "result_uri": f"file://{path}", "request_count": 2, "counts": {}}
    by_manifest = validate(stage, manifest=theirs)
    by_path = validate(stage, path=path, task_id="w")
    assert by_manifest["counts"] == by_path["counts"] == {"ok": 1, "invalid_output": 1}
    checked = results(open_folder(by_manifest["result_path"], read_only=True))
    assert [(row.id, row.outcome) for row in checked] == [
        ("k-0", Outcome.OK),
        ("k-1", Outcome.INVALID_OUTPUT),
    ]


def test_too_many_failures_fail_the_task_and_leave_the_manifest(stage):
    manifest = scores(stage, 0.5, 0.25)
    with pytest.raises(AirflowFailException, match="2 of 2 items failed"):
        validate(stage, manifest=manifest, output_type=Never, max_failed=0.5)
    assert stage.instance is not None
    assert stage.instance.xcoms["return_value"]["counts"] == {"invalid_output": 2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "Exactly one of manifest and path"),
        ({"path": "rows.jsonl"}, "a relative path"),
        ({"path": "/nowhere/at/all"}, "no results|does not exist|cannot be"),
        ({"manifest": {"schema_version": 9}}, "schema_version"),
        ({"path": "/x", "output_type": "no.such:Type"}, "cannot be imported"),
    ],
)
def test_an_argument_that_cannot_be_used_fails_the_task_for_good(stage, arguments, words):
    with pytest.raises(AirflowFailException, match=words):
        validate(stage, **arguments)
