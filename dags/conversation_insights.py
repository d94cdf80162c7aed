"""
Conversations between two people → topic, sentiment of each speaker, facts stated → results and a bill.

Runs daily, and by hand from the UI with other values. Everything is kept below
``[llmbatch] results_path``, one folder per run and task; clearing a task goes on where it ended.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from airflow.sdk import DAG, Param
from pydantic import BaseModel, Field

from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator
from airflow_provider_llmbatch.operators.report import LLMBatchReportOperator
from airflow_provider_llmbatch.operators.retry import LLMBatchRetryPolicy
from airflow_provider_llmbatch.operators.split import LLMBatchSplitOperator

PROMPT = "conversation_insights@1"


class Sentiment(StrEnum):
    """How a speaker sounds."""

    POSITIVE = "positive"
    NEUTRAL = "neutral"
    NEGATIVE = "negative"
    MIXED = "mixed"


class Voice(StrEnum):
    """Who speaks."""

    A = "A"
    B = "B"


class Speaker(BaseModel):
    """One side of the conversation."""

    sentiment: Sentiment
    interests: list[str] = Field(max_length=10)


class Fact(BaseModel):
    """Something that was stated."""

    speaker: Voice
    statement: str = Field(min_length=1)


class Insights(BaseModel):
    """What an analyst needs of a conversation."""

    topic: str = Field(min_length=1, description="the main topic in a few words")
    a: Speaker
    b: Speaker
    facts: list[Fact] = Field(max_length=20)


with DAG(
    dag_id="conversation_insights",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    render_template_as_native_obj=True,
    tags=["llmbatch"],
    doc_md=__doc__,
    default_args={
        "retries": 3,
        "retry_delay": timedelta(seconds=30),
        "retry_policy": LLMBatchRetryPolicy(),
    },
    params={
        "source": Param(
            "data/conversations.jsonl", type="string", title="Source", description="Path or URL."
        ),
        "model": Param("gpt-4o-mini", type="string", title="Model"),
        "budget_usd": Param(5.0, type="number", exclusiveMinimum=0, title="Budget in US dollars"),
        "plan_only": Param(False, type="boolean", title="Only draw the plan, send nothing"),
        "sample": Param(None, type=["null", "integer"], minimum=1, title="Only the first N items"),
        "max_chunks": Param(4, type="integer", minimum=1, title="Most chunks, and so tasks at a time"),
        "max_failed": Param(
            0.1, type="number", minimum=0, maximum=1, title="Share that may fail", description="From 0 to 1."
        ),
    },
) as dag:
    asked = {"prompt": PROMPT, "model": "{{ params.model }}", "output_type": Insights}

    split = LLMBatchSplitOperator(
        task_id="split",
        source="{{ params.source }}",
        sample="{{ params.sample }}",
        plan_only="{{ params.plan_only }}",
        token_budget=40_000,
        max_chunks="{{ params.max_chunks }}",
        **asked,
    )
    dispatch = LLMBatchDispatchOperator.partial(
        task_id="dispatch",
        budget_usd="{{ params.budget_usd }}",
        max_failed="{{ params.max_failed }}",
        **asked,
    ).expand(chunk=split.output)
    LLMBatchReportOperator(task_id="report", manifests=dispatch.output, plan=split.output)
