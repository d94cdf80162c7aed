"""How far runs are, over HTTP."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from airflow_provider_llmbatch.operators.progress import (
    Part,
    TaskProgress,
    dags_with_results,
    progress_of,
)
from airflow_provider_llmbatch.plugins.api.answers import moment
from airflow_provider_llmbatch.plugins.api.gates import MAY_READ, Readable, readable_dags
from airflow_provider_llmbatch.settings import load_settings

router = APIRouter(prefix="/api/v1")


class PartShape(BaseModel):
    """One mapped instance, or one chunk that has ended."""

    number: int
    state: str
    items: int
    done: int
    rate: float
    waits_for: str
    use: dict[str, float]
    at: str | None
    reason: str


class TaskShape(BaseModel):
    """A task that sends items."""

    task_id: str
    map_index: int
    state: str
    items: int
    done: int
    resumed: int
    counts: dict[str, int]
    tokens: dict[str, int]
    usd: str
    unpriced: bool
    planned_usd: str | None
    budget_usd: str | None
    rate: float
    eta_s: float | None
    parts: list[PartShape]


class RunShape(BaseModel):
    """A run."""

    tasks: list[TaskShape]


class DagsShape(BaseModel):
    """DAGs that have results."""

    dag_ids: list[str]


@router.get("/dags")
def list_dags(readable: Annotated[Readable, Depends(readable_dags)]) -> DagsShape:
    """List the DAGs with results that the caller may read."""
    return DagsShape(dag_ids=[dag for dag in dags_with_results(load_settings()) if dag in readable])


@router.get("/dags/{dag_id}/runs/{run_id}/progress", dependencies=[MAY_READ])
def show_run(dag_id: str, run_id: str) -> RunShape:
    """Show how far a run is."""
    return RunShape(tasks=[_task(each) for each in progress_of(load_settings(), dag_id, run_id)])


def _task(found: TaskProgress) -> TaskShape:
    parts = found.parts
    counts, tokens = Counter[str](), Counter[str]()
    for part in parts:
        counts.update(part.counts)
        tokens.update(part.tokens)
    return TaskShape(
        task_id=found.task_id,
        map_index=found.map_index,
        state=_state(found),
        items=found.items,
        done=sum(part.done for part in parts),
        resumed=sum(part.resumed for part in parts),
        counts=counts,
        tokens=tokens,
        usd=format(sum(part.usd for part in parts), "f"),
        unpriced=any(part.unpriced for part in parts),
        planned_usd=None if found.planned_usd is None else format(found.planned_usd, "f"),
        budget_usd=None if found.budget_usd is None else format(found.budget_usd, "f"),
        rate=sum(part.rate for part in parts),
        eta_s=found.eta_s,
        parts=[_part(part) for part in parts],
    )


def _state(found: TaskProgress) -> str:
    """Return the state of the part that is furthest from its end; what has not begun is not complete."""
    states = {part.state for part in found.parts}
    begun = sum(part.items for part in found.parts)
    if states == {"complete"} and begun < found.items:
        return "running"
    return next((state for state in ("running", "stopped", "complete") if state in states), "begun")


def _part(part: Part) -> PartShape:
    return PartShape(
        number=part.number,
        state=part.state,
        items=part.items,
        done=part.done,
        rate=part.rate,
        waits_for=part.waits_for,
        use=dict(part.use),
        at=moment(part.at) if part.at else None,
        reason=part.reason,
    )
