"""
Two versions of a prompt on trial: production items and a golden set → grades → a gate, each hour.

A few of the production items get the candidate. The golden set, whose answers are known, is asked of both
versions. A round in which no metric is worse gives the candidate more items, 5, 15, 50 and in the end all of
them; a metric that is worse in two rounds running pauses it, and all items get the base from then on. Only a
person resumes it: on the page *Browse → LLM rollouts*, or by hand with the action as the DAG's parameter.

The production items may as well be those of other DAGs: their dispatch tasks name the prompt
``rollout:prompt_rollout/shorter``.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param, task

from airflow_provider_llmbatch.notifications.review import LLMBatchReviewNotifier
from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator
from airflow_provider_llmbatch.operators.grade import LLMBatchGradeOperator
from airflow_provider_llmbatch.operators.rollout import LLMBatchRolloutOperator

ROLLOUT = "shorter"

with DAG(
    dag_id="prompt_rollout",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    render_template_as_native_obj=True,
    tags=["llmbatch"],
    doc_md=__doc__,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=30)},
    params={
        "source": Param("data/questions.jsonl", type="string", title="Production items"),
        "golden": Param("data/golden_questions.jsonl", type="string", title="Golden set, with references"),
        "model": Param("gpt-4o-mini", type="string", title="Model"),
        "judge": Param(False, type="boolean", title="Have the model compare the pairs of the golden set"),
        "min_new": Param(30, type="integer", minimum=2, title="New answers that a metric needs"),
        "action": Param(
            None,
            type=["null", "string"],
            enum=[None, "pause", "resume", "promote"],
            title="What to do with it",
        ),
        "why": Param("", type="string", title="Why"),
    },
) as dag:
    terms = {
        "rollout": ROLLOUT,
        "base": "short_answer@1",
        "candidate": "short_answer@2",
        "min_new": "{{ params.min_new }}",
    }
    asked = {"model": "{{ params.model }}", "max_failed": 1.0}
    # Says so in the task's log, and goes on, where there is no such connection.
    alerts = LLMBatchReviewNotifier(
        conn_id="llmbatch_alerts",
        title="Rollout {{ rollout.rollout }}: {{ rollout.action }} after round {{ rollout.round }}",
        body="{{ rollout.by }} {{ rollout.why }}. It is {{ rollout.state }} at {{ rollout.rate }}. "
        "{{ rollout.verdicts }}",
    )

    opened = LLMBatchRolloutOperator(
        task_id="open", action="{{ params.action }}", why="{{ params.why }}", notifiers=alerts, **terms
    )

    @task.short_circuit
    def runs(standing: dict[str, str]) -> bool:
        """Spare the golden set while the rollout is paused."""
        return standing["state"] == "running"

    live = LLMBatchDispatchOperator(
        task_id="live", source="{{ params.source }}", prompt=f"rollout:{ROLLOUT}", **asked
    )
    both = {
        arm: LLMBatchDispatchOperator(
            task_id=f"golden_{arm}", source="{{ params.golden }}", prompt=f"rollout:{ROLLOUT}:{arm}", **asked
        )
        for arm in ("base", "candidate")
    }
    grade = LLMBatchGradeOperator(
        task_id="grade",
        rollout=ROLLOUT,
        golden={arm: dispatch.output for arm, dispatch in both.items()},
        source="{{ params.golden }}",
        judge="{{ params.judge }}",
        model="{{ params.model }}",
    )
    gate = LLMBatchRolloutOperator(task_id="gate", grades=grade.output, notifiers=alerts, **terms)
    opened >> live >> grade
    runs(opened.output) >> list(both.values()) >> grade
