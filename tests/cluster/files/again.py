"""A DAG whose questions are paid once, however often it is killed, cleared or triggered."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator

ITEMS = 80

with DAG("again", schedule=None):
    LLMBatchDispatchOperator(
        task_id="dispatch",
        source=[{"id": f"again-{n}", "prompt": f"Say the number {n}."} for n in range(ITEMS)],
        prompt={"system": "Answer in a word."},
        model="gpt-4o-mini",
        llm_conn_id="llmbatch_second",
        reuse=True,
        retries=3,
        retry_delay=timedelta(seconds=1),
    )
