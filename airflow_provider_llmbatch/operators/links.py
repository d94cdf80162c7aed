"""Links from a task in Airflow's pages to ours."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey


class LLMBatchReportLink(BaseOperatorLink):
    """The page with what a task has done so far: outcomes, tokens, money."""

    name = "LLM batch report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address; it is stored in the link's XCom."""
        return report_address(ti_key.dag_id, ti_key.run_id, ti_key.task_id)


def report_address(dag_id: str, run_id: str, task_id: str) -> str:
    """Return the address of a task's report, below the path of ``[api] base_url``."""
    from urllib.parse import urlsplit

    from airflow.sdk import conf

    prefix = urlsplit(conf.get("api", "base_url", fallback="/")).path.rstrip("/")
    dag, run, task = (quote(part, safe="") for part in (dag_id, run_id, task_id))
    return f"{prefix}/llmbatch/dags/{dag}/runs/{run}/tasks/{task}/report"


def push_report_link(context: Context) -> None:
    """Make the link work while the task is still running; Airflow itself pushes it at the end."""
    instance = context["ti"]
    address = report_address(instance.dag_id, instance.run_id, instance.task_id)
    instance.xcom_push(key=LLMBatchReportLink().xcom_key, value=address)
