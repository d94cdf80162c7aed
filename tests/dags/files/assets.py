"""A batch whose results others wait for."""

from __future__ import annotations

from airflow.sdk import DAG, Asset, AssetAlias

from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator
from airflow_provider_llmbatch.operators.export import LLMBatchExportOperator

ITEMS = [{"id": name, "vars": {"text": name}} for name in ("a", "b")]

with DAG("assets", schedule=None, doc_md=__doc__) as dag:
    dispatch = LLMBatchDispatchOperator(
        task_id="dispatch",
        source=ITEMS,
        prompt={"system": "Be brief.", "user": "{{ text }}"},
        model="gpt-4o-mini",
        retries=1,
        outlets=[Asset("answers"), AssetAlias("answers_of_the_day")],
    )
    LLMBatchExportOperator(
        task_id="export", manifests=dispatch.output, format="csv", outlets=[Asset("answers_table")]
    )
