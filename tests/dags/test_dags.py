"""The repository's DAGs, and DAGs as users write them, from their first task to their last."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_llmbatch.engine.items import Result
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results
from tests.dags.conftest import ROOT, load

pytestmark = pytest.mark.slow

FILES = sorted((ROOT / "dags").glob("*.py"))


def states(run) -> dict[str, list[str]]:
    """Return the states of a run's task instances by task."""
    found: dict[str, list[str]] = {}
    for instance in sorted(run.get_task_instances(), key=lambda each: each.map_index):
        found.setdefault(instance.task_id, []).append(str(instance.state))
    return found


def returned(run, task_id: str, map_index: int = -1, key: str = "return_value") -> Any:
    instance = run.get_task_instance(task_id, map_index=map_index)
    return instance.xcom_pull(task_ids=task_id, map_indexes=map_index, key=key)


def rows(manifest) -> list[Result]:
    return list(results(open_folder(manifest["result_path"], read_only=True)))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_file_holds_dags_that_can_be_triggered_and_say_what_they_do(path):
    dags = load(path)
    assert dags
    for dag in dags.values():
        dag.validate()
        assert dag.doc_md
        assert all(task.retries for task in dag.tasks)
        params = [dag.params.get_param(name) for name in dag.params]
        assert all({"type", "title"} <= set(param.schema) for param in params)


def test_the_conversations_end_in_checked_rows_and_a_report(run_dag, arrivals):
    run = run_dag("conversation_insights.py", "conversation_insights", sample=7)
    assert states(run) == {"split": ["success"], "dispatch": ["success"], "report": ["success"]}
    assert returned(run, "report")["counts"] == {"ok": 7}
    assert len(arrivals()) == 7
    assert all(set(row.output) == {"topic", "a", "b", "facts"} for row in rows(returned(run, "dispatch", 0)))


def test_notes_are_read_by_a_model_and_fused_with_ct_and_slides(run_dag, arrivals):
    run = run_dag("multimodal_fusion.py", "multimodal_fusion", count=6, deid="warn", max_bad=0.1)
    assert states(run) == {"prepare": ["success"], "findings": ["success"], "fuse": ["success"]}
    notes, fused = returned(run, "findings"), returned(run, "fuse")
    assert (len(arrivals()), fused["counts"]["ok"]) == (notes["items"], 11)
    assert fused["top_error_codes"] == {"ct.gap": 1, "ct.photometric": 1}
    assert fused["missing"]["facts"] == fused["missing"]["notes"] == 11 - notes["items"]
    assert fused["warnings"] == {"deid.person": 1}


def test_a_decorated_function_becomes_a_batch(run_dag, arrivals):
    run = run_dag("flows.py", "decorated", count=4)
    assert str(run.state) == "success"
    asked = rows(returned(run, "ask"))
    assert [(row.id, row.metadata) for row in asked] == [(f"hello-{n}", run.run_id) for n in range(4)]
    assert [row.id for row in rows(returned(run, "plain"))] == ["#0", "#1"]
    assert (returned(run, "count"), returned(run, "count_each")) == (6, 3)
    each = [rows(returned(run, "each", index)) for index in range(3)]
    assert [[row.id for row in found] for found in each] == [["a"], ["b"], ["c"]]
    assert len(arrivals()) == 9


def test_rows_of_an_earlier_task_are_split_mapped_and_reported(run_dag, arrivals):
    run = run_dag("flows.py", "chained")
    assert str(run.state) == "success"
    assert len(states(run)["dispatch"]) > 1
    assert returned(run, "report")["counts"] == {"ok": 6}
    assert [row.id for row in rows(returned(run, "dispatch", 0))] == [str(n) for n in range(6)]
    assert returned(run, "dispatch", 1, key="_link_LLMBatchReportLink").endswith("/report?map_index=1")
    assert len(arrivals()) == 6


def test_a_failed_dispatch_is_not_tried_in_vain_and_leaves_its_manifest_for_the_report(run_dag, arrivals):
    run = run_dag("flows.py", "failing")
    assert states(run) == {"refused": ["failed"], "report": ["success"]}
    assert returned(run, "report")["counts"] == {"refused": 1}
    assert len(arrivals()) == 1


def test_summaries_are_routed_over_three_services(run_dag, simulators):
    primary, second, third = simulators
    primary.play({"match": {"model": "gpt-4o-mini"}, "reply": {"status": 500, "error": {"message": "oops"}}})
    second.play({"match": {"every": 4}, "reply": {"status": 429, "error": {"message": "slow down"}}})
    run = run_dag("routed_summaries.py", "routed_summaries", sample=24)
    assert states(run) == {"dispatch": ["success"], "report": ["success"]}
    assert returned(run, "report")["counts"] == {"ok": 24}
    found = rows(returned(run, "dispatch"))
    large = [row for row in found if row.served_model == "gpt-4o"]
    assert 0 < len(large) < 24
    assert {row.endpoint for row in large} == {primary.url}
    assert {row.endpoint for row in found if row not in large} == {second.url, third.url}
    answered = [a for one in simulators for a in one.arrivals() if a.status == 200]
    assert len(answered) == 24
