"""Stop a run from outside: who may change a run of the DAG may stop its batches, and let them go on."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import APIRouter, Depends, HTTPException, Request
from pydantic import BaseModel, Field
from starlette.status import HTTP_403_FORBIDDEN, HTTP_503_SERVICE_UNAVAILABLE

from airflow_provider_llmbatch.errors import LLMBatchError
from airflow_provider_llmbatch.operators.stopping import BY_LENGTH, WHY_LENGTH, let_go_on, stop_of, stop_run


class Wish(BaseModel):
    """The body of a stop."""

    why: str = Field("", max_length=WHY_LENGTH)


def refuse_other_sites(request: Request) -> None:
    """Refuse what another site makes a browser send with its user's cookie, and whatever may be that."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        ours = site == "same-origin"
    elif origin is not None:
        ours = urlsplit(origin).netloc == request.headers.get("host")
    else:
        ours = "authorization" in request.headers
    if not ours:
        raise HTTPException(
            HTTP_403_FORBIDDEN, "Runs are stopped from this server's own pages, or with a token of its API."
        )


may_look = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
may_change = [Depends(refuse_other_sites), Depends(requires_access_dag("PUT", DagAccessEntity.RUN))]

router = APIRouter(prefix="/api/v1/dags/{dag_id}/runs/{run_id}/stop")


@router.get("", dependencies=[may_look])
def asked(dag_id: str, run_id: str) -> dict[str, Any]:
    """Say who stops the run, and why."""
    return _told(dag_id, run_id)


@router.post("", dependencies=may_change)
def stop(dag_id: str, run_id: str, wish: Wish, user: GetUserDep) -> dict[str, Any]:
    """Have the run's batches stop within two seconds; see :func:`.operators.stopping.stop_run`."""
    try:
        stop_run(dag_id, run_id, by=user.get_name()[:BY_LENGTH], why=wish.why)
    except LLMBatchError as error:
        raise _unreachable(error) from error
    return _told(dag_id, run_id)


@router.delete("", dependencies=may_change)
def lift(dag_id: str, run_id: str) -> dict[str, Any]:
    """Let the run go on: tasks that start from now on send again."""
    try:
        let_go_on(dag_id, run_id)
    except LLMBatchError as error:
        raise _unreachable(error) from error
    return _told(dag_id, run_id)


def _told(dag_id: str, run_id: str) -> dict[str, Any]:
    try:
        found = stop_of(dag_id, run_id)
    except LLMBatchError as error:
        raise _unreachable(error) from error
    return {"stop": None if found is None else {"by": found.by, "why": found.why, "at": found.at}}


def _unreachable(error: LLMBatchError) -> HTTPException:
    return HTTPException(HTTP_503_SERVICE_UNAVAILABLE, f"The state of batches cannot be reached: {error}")
