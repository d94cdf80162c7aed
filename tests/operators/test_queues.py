"""Queues of tasks that wait and of tasks that compute, as airflow.cfg names them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from airflow_provider_llmbatch.compat import AIRFLOW_V_3_3_PLUS
from airflow_provider_llmbatch.operators.llm_map import LLMBatchMapOperator

ASK = """
import json
from airflow.sdk import DAG, task
from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator as Dispatch
from airflow_provider_llmbatch.operators.export import LLMBatchExportOperator as Export
from airflow_provider_llmbatch.operators.llm_map import llm_map_task
from airflow_provider_llmbatch.operators.report import LLMBatchReportOperator as Report
from airflow_provider_llmbatch.operators.split import LLMBatchSplitOperator as Split
from airflow_provider_llmbatch.operators.validate import LLMBatchValidateOperator as Validate

with DAG("d", schedule=None) as dag:
    split = Split(task_id="split", prompt="p@1", source="x")
    Dispatch(task_id="dispatch", prompt="p@1", source="x")
    mapped = Dispatch.partial(task_id="mapped", prompt="p@1").expand(chunk=split.output)
    Dispatch(task_id="named", prompt="p@1", source="x", queue="mine")
    Dispatch.partial(task_id="mapped_named", prompt="p@1", queue="mine").expand(chunk=split.output)
    Report(task_id="report", manifests=mapped.output)
    Export(task_id="export", manifests=mapped.output)
    Validate(task_id="validate", manifest=mapped.output, output_type=dict)
    llm_map_task(lambda: [], prompt="p@1", task_id="decorated")()
with DAG("e", schedule=None, default_args={"queue": "of_the_dag"}) as other:
    Dispatch(task_id="by_default", prompt="p@1", source="x")
    Dispatch.partial(task_id="mapped_by_default", prompt="p@1").expand(source=["x"])
print(json.dumps({task.task_id: task.queue for task in [*dag.tasks, *other.tasks]}))
"""


def queues(airflow_home, **options: str) -> dict[str, str]:
    """Read a DAG in a new process, as Airflow does, and return the queue of each task."""
    environment = {f"AIRFLOW__LLMBATCH__{name.upper()}": value for name, value in options.items()}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "AIRFLOW_HOME": str(airflow_home), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_each_operator_runs_on_the_queue_of_its_kind_unless_the_dag_names_one(airflow_home):
    found = queues(airflow_home, io_queue="io", cpu_queue="cpu")
    mapped = "io" if AIRFLOW_V_3_3_PLUS else "default"
    assert found == {
        **{"split": "cpu", "report": "cpu", "export": "cpu", "validate": "cpu"},
        **{"dispatch": "io", "decorated": "io", "mapped": mapped},
        **{"named": "mine", "mapped_named": "mine"},
        **{"by_default": "of_the_dag", "mapped_by_default": "of_the_dag"},
    }


def test_without_a_word_in_airflow_cfg_all_tasks_run_where_airflow_runs_them(stage):
    assert {stage.dispatch().queue, stage.split(source="x").queue} == {"default"}


def mapped(stage, **arguments):
    task = LLMBatchMapOperator(
        **{"task_id": "t", "dag": stage.dag(), "prompt": {"system": "x"}, "model": "m-1", "retries": 1},
        python_callable=lambda: ["one"],
        **arguments,
    )
    return stage.run(task, map_index=0)


def test_a_mapped_task_that_airflow_has_put_on_another_queue_says_how_to_mend_that(
    stage, monkeypatch, capsys
):
    mapped(stage)
    monkeypatch.setenv("AIRFLOW__LLMBATCH__IO_QUEUE", "io")
    mapped(stage, queue="io")
    assert "io_queue" not in capsys.readouterr().out
    mapped(stage)
    told = capsys.readouterr().out
    assert "[llmbatch] io_queue is 'io', and this mapped task runs on 'default'" in told
    assert "Name it there: queue='io'" in told
