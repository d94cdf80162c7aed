"""Links from a task in Airflow's pages to ours."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

from airflow.sdk import BaseOperatorLink

from airflow_provider_llmbatch.operators.arguments import run_ref

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey


class LLMBatchReportLink(BaseOperatorLink):
    """The page with what a task has done so far: outcomes, tokens, money."""

    name = "LLM batch report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address; it is stored in the link's XCom."""
        return report_address(ti_key.dag_id, ti_key.run_id, ti_key.task_id, ti_key.map_index)


def report_address(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """
    Return the address of a task's report, below the path of ``[api] base_url``.

    :param map_index: which of the mapped instances; -1 for a task that is not mapped.
    """
    return _address("report", dag_id, run_id, task_id, map_index)


def _address(page: str, dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    from airflow.sdk import conf

    prefix = urlsplit(conf.get("api", "base_url", fallback="/")).path.rstrip("/")
    dag, run, task = (quote(part, safe="") for part in (dag_id, run_id, task_id))
    query = f"?map_index={map_index}" if map_index >= 0 else ""
    return f"{prefix}/llmbatch/dags/{dag}/runs/{run}/tasks/{task}/{page}{query}"


class LLMBatchReviewLink(BaseOperatorLink):
    """The queue of a review task."""

    name = "LLM batch review"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address; it is stored in the link's XCom."""
        return review_address(ti_key.dag_id, ti_key.run_id, ti_key.task_id, ti_key.map_index)


def review_address(
    dag_id: str, run_id: str, task_id: str, map_index: int = -1, *, absolute: bool = False
) -> str:
    """
    Return the address of the page of a queue.

    :param absolute: with scheme and host, as ``[api] base_url`` has them, for letters and chats.
    """
    from airflow.sdk import conf

    below = _address("review", dag_id, run_id, task_id, map_index)
    return urljoin(conf.get("api", "base_url", fallback="/"), below) if absolute else below


def push_review_link(context: Context) -> None:
    """Make the link work while people decide."""
    ref = run_ref(context)
    address = review_address(ref.dag, ref.run, ref.task, ref.map_index)
    context["ti"].xcom_push(key=LLMBatchReviewLink().xcom_key, value=address)


def push_report_link(context: Context) -> None:
    """Make the link work while the task is still running; Airflow itself pushes it at the end."""
    ref = run_ref(context)
    address = report_address(ref.dag, ref.run, ref.task, ref.map_index)
    context["ti"].xcom_push(key=LLMBatchReportLink().xcom_key, value=address)
