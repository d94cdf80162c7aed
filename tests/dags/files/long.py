"""A batch that takes long enough to be killed half way."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator

with DAG("long", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    LLMBatchDispatchOperator(
        task_id="dispatch",
        source=[{"id": f"i{n}", "vars": {"text": f"number {n}"}} for n in range(60)],
        prompt={"system": "Answer in a word.", "user": "{{ text }}"},
        model="m-1",
        retries=1,
        retry_delay=timedelta(seconds=0),
    )
