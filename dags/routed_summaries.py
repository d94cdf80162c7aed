"""
Short conversations → a small model, long ones → a large one, each with two services behind it.

Needs three connections: ``llm_primary``, ``llm_second`` and ``llm_third``. While the primary is slow (p95 of
all workers over 800 ms), throttles or fails, requests go to the second and then to the third; an answer is
never paid twice for being slow. What fails for everybody is parked for all workers, and tried again each
minute.
"""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_llmbatch.operators.dispatch import LLMBatchDispatchOperator
from airflow_provider_llmbatch.operators.report import LLMBatchReportOperator
from airflow_provider_llmbatch.operators.retry import LLMBatchRetryPolicy

SMALL, LARGE = "gpt-4o-mini", "gpt-4o"
CONNECTIONS = ("llm_primary", "llm_second", "llm_third")
#: Prompt tokens from which a conversation is long.
LONG = 512


def tier(name: str, model: str) -> tuple[dict[str, dict[str, str]], list[dict[str, str]]]:
    """Return one model at all three services, and the rules that lead from each to the next."""
    names = [f"{name}_{place}" for place in ("first", "second", "third")]
    endpoints = {
        one: {"llm_conn_id": conn_id, "model": model} for one, conn_id in zip(names, CONNECTIONS, strict=True)
    }
    rules = []
    for one, following in itertools.pairwise(names):
        rules.append({"from": one, "if": "latency_ms > 800.0", "use": following})
        rules.append({"from": one, "if": "status == 429 || status >= 500", "use": following})
    return endpoints, rules


small, small_rules = tier("small", SMALL)
large, large_rules = tier("large", LARGE)

ROUTES = {
    "endpoints": {**small, **large},
    "rules": [
        {"if": f"prompt_tokens >= {LONG}", "use": "large_first"},
        {"from": "small_first", "if": "outcome in ['truncated', 'too_long']", "use": "large_first"},
        *small_rules,
        *large_rules,
    ],
}

with DAG(
    dag_id="routed_summaries",
    schedule=None,
    start_date=datetime(2026, 1, 1),
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
        "sample": Param(None, type=["null", "integer"], minimum=1, title="Only the first N items"),
        "budget_usd": Param(5.0, type="number", exclusiveMinimum=0, title="Budget in US dollars"),
    },
) as dag:
    dispatch = LLMBatchDispatchOperator(
        task_id="dispatch",
        source="{{ params.source }}",
        sample="{{ params.sample }}",
        budget_usd="{{ params.budget_usd }}",
        prompt="conversation_summary@1",
        routes=ROUTES,
    )
    LLMBatchReportOperator(task_id="report", manifests=dispatch.output)
