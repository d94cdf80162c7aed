"""DAGs as users write them; the tests beside this folder run them in a real Airflow."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param, task

from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator
from airflow_provider_llmbatch.operators.report import LLMBatchReportOperator
from airflow_provider_llmbatch.operators.split import LLMBatchSplitOperator

PROMPT = {"system": "Answer in a word.", "user": "{{ text }}"}
ASKED = {"prompt": PROMPT, "model": "m-1"}
EVER = {
    "schedule": None,
    "start_date": datetime(2026, 1, 1),
    "default_args": {"retries": 1, "retry_delay": timedelta(seconds=1)},
}


with DAG("decorated", params={"count": Param(3, type="integer")}, **EVER) as decorated:

    @task.llm_map(**ASKED)
    def ask(greeting, *, params, run_id):
        """Yield items, with arguments of the call and of the context."""
        for number in range(params["count"]):
            yield {"id": f"{greeting}-{number}", "vars": {"text": "{{ not a template }}"}, "metadata": run_id}

    @task.llm_map(prompt={"system": "Answer briefly."}, model="m-1")
    def plain():
        """Return texts."""
        return ["one", "two"]

    @task.llm_map(**ASKED)
    def each(topic):
        """Become one instance for each topic."""
        yield {"id": topic, "vars": {"text": topic}}

    @task
    def count(*manifests):
        """Use what the tasks returned."""
        return sum(manifest["items"] for manifest in manifests)

    @task
    def count_each(manifests):
        """Use what all instances of a task returned."""
        return sum(manifest["items"] for manifest in manifests)

    count(ask("hello"), plain())
    count_each(each.expand(topic=["a", "b", "c"]))


with DAG("chained", params={"nothing": Param(None, type=["null", "integer"])}, **EVER) as chained:

    @task
    def rows():
        """Return rows with braces in them, which are data."""
        return [{"id": str(n), "vars": {"text": "{{ var.value.secret }} {% if"}} for n in range(6)]

    split = LLMBatchSplitOperator(task_id="split", source=rows(), token_budget="{{ 30 * 10 }}", **ASKED)
    dispatch = LLMBatchDispatchOperator.partial(
        task_id="dispatch", max_attempts="{{ 2 + 1 }}", budget_usd="{{ params.nothing }}", **ASKED
    ).expand(chunk=split.output)
    LLMBatchReportOperator(task_id="report", manifests=dispatch.output, plan=split.output)


with DAG("failing", **EVER) as failing:
    refused = LLMBatchDispatchOperator(
        task_id="refused", source=[{"id": "x", "vars": {"text": "refuse this"}}], **ASKED
    )
    LLMBatchReportOperator(task_id="report", manifests=refused.output, trigger_rule="all_done")
