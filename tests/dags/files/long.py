"""A batch that takes long enough to be killed half way, and one that people look at."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator
from airflow_provider_llmbatch.operators.review import LLMBatchReviewOperator

with DAG("long", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    LLMBatchDispatchOperator(
        task_id="dispatch",
        source=[{"id": f"i{n}", "vars": {"text": f"number {n}"}} for n in range(60)],
        prompt={"system": "Answer in a word.", "user": "{{ text }}"},
        model="m-1",
        retries=1,
        retry_delay=timedelta(seconds=0),
    )

with DAG("reviewed", schedule=None, start_date=datetime(2026, 1, 1)) as reviewed:
    few = [{"id": f"i{n}", "vars": {"text": f"number {n}"}} for n in range(12)]
    asked = {"prompt": {"system": "Answer in a word.", "user": "{{ text }}"}, "model": "m-1", "retries": 1}
    asked["retry_delay"] = timedelta(seconds=0)
    sent = LLMBatchDispatchOperator(task_id="dispatch", source=few, max_failed=1.0, **asked)
    LLMBatchReviewOperator(task_id="review", manifests=sent.output, source=few, **asked)
