"""What runs have cost, and how full budgets are, over HTTP."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.models.connection import Connection
from airflow.models.dagrun import DagRun
from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel
from sqlalchemy import select

from airflow_provider_llmbatch.engine.results.spending import Spent, summed
from airflow_provider_llmbatch.hooks.llm import LLMBatchHook
from airflow_provider_llmbatch.operators.budgets import BudgetUse, budgets_of
from airflow_provider_llmbatch.operators.costs import MOST_RUNS, Known, Run, costs_of
from airflow_provider_llmbatch.operators.progress import dags_with_results
from airflow_provider_llmbatch.plugins.api.gates import Readable, may_read_connections, readable_dags
from airflow_provider_llmbatch.plugins.api.shapes import LISTED_MOST
from airflow_provider_llmbatch.settings import load_settings

router = APIRouter(prefix="/api/v1")

Days = Annotated[int, Query(ge=1, le=90)]

#: Runs that Airflow is asked for, the latest first; what it has before them ended long ago.
_ASKED_MOST = 20 * MOST_RUNS
#: Connection types that can have budgets.
_TYPES = ("llmbatch", "openai", "pydanticai")
#: What variables are called that hold connections.
_IN_ENVIRONMENT = "AIRFLOW_CONN_"
_MICRO = 1_000_000


class SpentShape(BaseModel):
    """The calls of one DAG, day, model and prompt."""

    dag_id: str
    #: empty where the ledger does not say, as with the prompt
    day: str
    model: str
    prompt: str
    usd: str
    calls: int
    unpriced: int
    maybe_paid: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    estimated: bool


class CostsShape(BaseModel):
    """What was spent since a day, and what is not known of it."""

    since: str
    until: str
    spent: list[SpentShape]
    runs: int
    most_runs: int
    left_out: int
    without_results: int
    unread: int
    unreadable: list[str]
    unreadable_total: int


class BudgetShape(BaseModel):
    """A budget; amounts are US dollars as decimal text, or tokens."""

    conn_ids: list[str]
    account: str
    name: str
    unit: Literal["usd", "tokens"]
    used: str
    capacity: str
    share: float
    per: str
    resets_s: float


class BudgetsShape(BaseModel):
    """The budgets of connections that can be listed."""

    may_see: bool
    budgets: list[BudgetShape]
    per_run: list[str]
    unreadable: list[str]


@router.get("/costs")
def list_costs(
    readable: Annotated[Readable, Depends(readable_dags)], session: SessionDep, days: Days = 30
) -> CostsShape:
    """Add up what the runs of the DAGs that the caller may read have spent in the last days, in UTC."""
    settings = load_settings()
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    since = today - timedelta(days=days - 1)
    dags = [dag for dag in dags_with_results(settings) if dag in readable]
    found = costs_of(settings, dags, _known(session, dags), since)
    first = since.date().isoformat()
    counted = [(dag, spent) for dag, spent in found.spent if not spent.day or spent.day >= first]
    return CostsShape(
        since=first,
        until=today.date().isoformat(),
        spent=[_shape(dag, spent) for dag, spent in _grouped(counted)],
        runs=found.runs,
        most_runs=MOST_RUNS,
        left_out=found.left_out,
        without_results=found.without_results,
        unread=found.unread,
        unreadable=found.unreadable[:LISTED_MOST],
        unreadable_total=len(found.unreadable),
    )


@router.get("/budgets")
def list_budgets(
    session: SessionDep, may_see: Annotated[bool, Depends(may_read_connections)]
) -> BudgetsShape:
    """
    List the budgets per day and month of the connections in Airflow's database and the environment.

    Who may not read connections is told so, and nothing else: the page has more to show.
    """
    if not may_see:
        return BudgetsShape(may_see=False, budgets=[], per_run=[], unreadable=[])
    found = budgets_of(load_settings(), sorted({*_in_database(session), *_in_environment()}))
    return BudgetsShape(
        may_see=True,
        budgets=[_budget(use) for use in found.uses],
        per_run=list(found.per_run),
        unreadable=list(found.unreadable),
    )


def _known(session: Any, dags: list[str]) -> dict[Run, Known]:
    query = (
        select(DagRun.dag_id, DagRun.run_id, DagRun.run_after, DagRun.end_date)
        .where(DagRun.dag_id.in_(dags))
        .order_by(DagRun.run_after.desc())
        .limit(_ASKED_MOST)
    )
    rows = session.execute(query)
    return {(dag, run): Known(began=began, ended=ended) for dag, run, began, ended in rows}


def _in_database(session: Any) -> Iterable[str]:
    found: Iterable[str] = session.scalars(select(Connection.conn_id).where(Connection.conn_type.in_(_TYPES)))
    return found


def _in_environment() -> Iterable[str]:
    for name in os.environ:
        if name.startswith(_IN_ENVIRONMENT):
            conn_id = name.removeprefix(_IN_ENVIRONMENT).lower()
            # One that cannot be read at all may be of any type.
            with contextlib.suppress(ValueError, TypeError):
                if LLMBatchHook.get_connection(conn_id).conn_type in _TYPES:
                    yield conn_id


def _grouped(spent: Iterable[tuple[str, Spent]]) -> list[tuple[str, Spent]]:
    """Return one row for each DAG, day, model and prompt."""
    groups: dict[tuple[str, str, str, str], list[Spent]] = {}
    for dag, row in spent:
        groups.setdefault((dag, row.day, row.model, row.prompt), []).append(row)
    return [
        (dag, summed(rows, day=day, model=model, prompt=prompt))
        for (dag, day, model, prompt), rows in sorted(groups.items())
    ]


def _shape(dag: str, spent: Spent) -> SpentShape:
    usage = spent.usage
    return SpentShape(
        dag_id=dag,
        day=spent.day,
        model=spent.model,
        prompt=spent.prompt,
        usd=format(spent.usd, "f"),
        calls=spent.calls,
        unpriced=spent.unpriced,
        maybe_paid=spent.maybe_paid,
        tokens_in=usage.prompt,
        tokens_cached=usage.cached,
        tokens_out=usage.completion,
        estimated=usage.estimated,
    )


def _budget(use: BudgetUse) -> BudgetShape:
    scale = _MICRO if use.unit == "micro_usd" else 1
    return BudgetShape(
        conn_ids=list(use.conn_ids),
        account=use.account,
        name=use.name,
        unit="usd" if use.unit == "micro_usd" else "tokens",
        used=f"{use.used / scale:.6f}" if scale > 1 else str(use.used),
        capacity=f"{use.capacity / scale:.6f}" if scale > 1 else str(use.capacity),
        share=use.used / max(1, use.capacity),
        per=use.per,
        resets_s=use.resets_s,
    )
