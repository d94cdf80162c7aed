"""Report: what a batch did and what it cost, against its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_llmbatch.operators import arguments
from airflow_provider_llmbatch.operators.batch import read_plan
from airflow_provider_llmbatch.operators.failed import failed_rows
from airflow_provider_llmbatch.operators.fate import decided
from airflow_provider_llmbatch.operators.links import LLMBatchReportLink, push_report_link
from airflow_provider_llmbatch.operators.places import REPORT_FILE
from airflow_provider_llmbatch.settings import queue_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_llmbatch.engine.summary import Plan

MARKDOWN_FILE = "report.md"
#: Where such tasks run, unless one names a queue.
QUEUE = queue_of("cpu_queue")


class LLMBatchReportOperator(BaseOperator):
    """
    Add manifests up to a report in Markdown and HTML; returns its sums and where it lies.

    :param manifests: what dispatch tasks returned: one manifest, or those of all mapped instances.
    :param plan: what the split task returned, to hold the result against.
    :param title: heads the report.
    :param result_path: folder of the report; one per task and run when left out.
    :param queue: queue of the worker; ``[llmbatch] cpu_queue`` when left out.
    """

    template_fields: Sequence[str] = ("manifests", "plan", "title", "result_path")
    operator_extra_links = (LLMBatchReportLink(),)
    ui_color = "#f0ece4"

    def __init__(
        self,
        *,
        manifests: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        plan: Sequence[Mapping[str, Any]] | None = None,
        title: str = "{{ dag.dag_id }} · {{ run_id }}",
        result_path: str | None = None,
        queue: str = QUEUE,
        **kwargs: Any,
    ) -> None:
        super().__init__(queue=queue, **kwargs)
        self.manifests = manifests
        self.plan = plan
        self.title = title
        self.result_path = result_path

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the report, and return its sums."""
        with decided():
            return self._report(context)

    def _report(self, context: Context) -> dict[str, Any]:
        from airflow_provider_llmbatch.engine.report.html import to_html
        from airflow_provider_llmbatch.engine.report.markdown import to_markdown
        from airflow_provider_llmbatch.engine.report.merge import merge
        from airflow_provider_llmbatch.operators.storage import open_folder
        from airflow_provider_llmbatch.settings import load_settings

        push_report_link(context)
        manifests = arguments.manifests_of("manifests", self.manifests)
        report = merge(manifests, plan=self._plan(), results=failed_rows(manifests), title=str(self.title))
        settings = load_settings()
        folder = open_folder(arguments.result_location(self.result_path, context, settings, apart=True))
        own = open_folder(arguments.own_folder(context, settings, apart=True))
        markdown, html = to_markdown(report), to_html(report)
        folder.put(MARKDOWN_FILE, iter([markdown.encode()]), replace=True)
        # The console looks in the task's own folder, wherever else the report shall be.
        for place in {folder.uri: folder, own.uri: own}.values():
            place.put(REPORT_FILE, iter([html.encode()]), replace=True)
        self.log.info("Report:\n%s", markdown)
        return {
            "html": f"{folder.uri}/{REPORT_FILE}",
            "markdown": f"{folder.uri}/{MARKDOWN_FILE}",
            "items": report.items,
            "counts": {str(outcome): n for outcome, n in report.counts.items()},
            "tokens": report.usage.total,
            "usd": None if report.cost.unpriced else format(report.cost.usd, "f"),
            "possible_double_paid": report.possible_double_paid,
        }

    def _plan(self) -> Plan | None:
        if not self.plan:
            return None
        return read_plan(self.plan[0] if not isinstance(self.plan, Mapping) else self.plan)
