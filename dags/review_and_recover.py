"""
Conversations → topic and confidence → people decide about what failed or is uncertain → a bill.

The dispatch never fails for its items: whatever ends badly waits for people, who send it again (as it was, to
another model or prompt version, with a larger cap), write the output themselves, take it as it is, or give it
up. The review task holds no worker meanwhile; the last decision wakes it. What still fails after the retries
is asked about once more.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param
from pydantic import BaseModel, Field

from airflow_provider_llmbatch.notifications.review import LLMBatchReviewNotifier
from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator
from airflow_provider_llmbatch.operators.report import LLMBatchReportOperator
from airflow_provider_llmbatch.operators.review import LLMBatchReviewOperator
from airflow_provider_llmbatch.operators.split import LLMBatchSplitOperator


class Topic(BaseModel):
    """What a conversation is about."""

    topic: str = Field(min_length=1, description="the main topic in a few words")
    confidence: float = Field(ge=0, le=1, description="how sure you are, from 0 to 1")


with DAG(
    dag_id="review_and_recover",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    catchup=False,
    render_template_as_native_obj=True,
    tags=["llmbatch"],
    doc_md=__doc__,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=30)},
    params={
        "source": Param(
            "data/conversations.jsonl", type="string", title="Source", description="Path or URL."
        ),
        "model": Param("gpt-4o-mini", type="string", title="Model"),
        "other_models": Param(
            ["gpt-4o"], type="array", title="Other models", description="That a retry may be sent to."
        ),
        "sample": Param(None, type=["null", "integer"], minimum=1, title="Only the first N items"),
        "uncertain": Param(
            "output.confidence < 0.5", type=["null", "string"], title="Which usable rows people see as well"
        ),
        "timeout": Param(
            3 * 24 * 3600, type="integer", minimum=1, title="Seconds after which the rest is given up"
        ),
        "max_attempts": Param(5, type="integer", minimum=1, title="Calls per item"),
    },
) as dag:
    asked = {"prompt": "conversation_topic@1", "model": "{{ params.model }}", "output_type": Topic}

    split = LLMBatchSplitOperator(
        task_id="split",
        source="{{ params.source }}",
        sample="{{ params.sample }}",
        token_budget=40_000,
        max_chunks=4,
        **asked,
    )
    dispatch = LLMBatchDispatchOperator.partial(
        task_id="dispatch", max_failed=1.0, fail_fast=0, max_attempts="{{ params.max_attempts }}", **asked
    ).expand(chunk=split.output)
    review = LLMBatchReviewOperator(
        task_id="review",
        manifests=dispatch.output,
        models="{{ params.other_models }}",
        uncertain="{{ params.uncertain }}",
        timeout="{{ params.timeout }}",
        default="skip",
        max_rounds=2,
        # Says so in the task's log, and goes on, where there is no such connection.
        notifiers=LLMBatchReviewNotifier(conn_id="llmbatch_alerts"),
        **asked,
    )
    LLMBatchReportOperator(task_id="report", manifests=review.output, plan=split.output)
