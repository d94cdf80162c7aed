"""A dispatch task from its arguments to its manifest, rows and link."""

from __future__ import annotations

import json

from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator

from .conftest import PROMPT


def dispatch(stage, **arguments):
    given = {"task_id": "t", "dag": stage.dag, "prompt": PROMPT, "model": "m-1", "retries": 1}
    return LLMBatchDispatchOperator(**{**given, **arguments})


def test_a_source_becomes_rows_and_a_manifest_that_add_up(stage):
    value = stage.run(dispatch(stage, source=stage.rows(12)))
    assert value["counts"] == {"ok": 12}
    assert value["state"] == "complete"
    assert len(json.dumps(value)) < 8192
    assert stage.outcomes() == [(f"i{n}", "ok") for n in range(12)]
    assert len(stage.service.arrivals()) == 12
