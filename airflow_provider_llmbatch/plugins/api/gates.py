"""Who gets in: Airflow's permissions, and posts that come from this very site."""

from __future__ import annotations

import inspect
from typing import Any
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import (
    GetUserDep,
    requires_access_connection,
    requires_access_dag,
)
from airflow.sdk import conf
from fastapi import Depends, HTTPException, Request, status

from airflow_provider_llmbatch.engine.review.rounds import Round


async def json_from_here(request: Request) -> None:
    """
    Refuse posts that another site may have made a browser send.

    A cookie alone proves who, not whence. The header that says whence, a page cannot set.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(status.HTTP_415_UNSUPPORTED_MEDIA_TYPE, "Send application/json.")
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    is_foreign = (origin is not None and urlsplit(origin).netloc not in _hosts(request)) or (
        site is not None and site != "same-origin"
    )
    is_silent = origin is None and site is None and "authorization" not in request.headers
    if is_foreign or is_silent:
        raise HTTPException(status.HTTP_403_FORBIDDEN, "This was not sent from Airflow's own pages.")


def _hosts(request: Request) -> set[str]:
    base = urlsplit(conf.get("api", "base_url", fallback="")).netloc
    return {host for host in (request.headers.get("host", ""), base) if host}


#: Each route has one of these, and those that change something the last as well.
MAY_READ = Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE))
MAY_EDIT = Depends(requires_access_dag("PUT"))
MAY_DECIDE = Depends(requires_access_dag("PUT", DagAccessEntity.HITL_DETAIL))
MAY_READ_CONNECTION = Depends(requires_access_connection("GET"))
MAY_CHANGE_CONNECTIONS = Depends(requires_access_connection("PUT"))
FROM_HERE = Depends(json_from_here)


def may_read(dag_id: str, request: Request, user: Any) -> bool:
    """Whether a user may read the task instances of a DAG."""
    return _passes(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE, dag_id), request, user)


def may_edit(dag_id: str, request: Request, user: Any) -> bool:
    """Whether a user may edit a DAG."""
    return _passes(requires_access_dag("PUT", None, dag_id), request, user)


def may_decide(dag_id: str, round: Round, request: Request, user: Any) -> bool:
    """Whether a user may answer for a DAG, and is among those who are asked to."""
    gate = requires_access_dag("PUT", DagAccessEntity.HITL_DETAIL, dag_id)
    return _passes(gate, request, user) and is_asked(round, user)


def is_asked(round: Round, user: Any) -> bool:
    """Whether a user is among those whom the task has named, if it has named any."""
    assigned = {id for id, _ in round.terms.assigned}
    return not assigned or get_auth_manager().is_authorized_hitl_task(assigned_users=assigned, user=user)


async def may_read_connections(request: Request, user: GetUserDep) -> bool:
    """Whether a user may read connections."""
    try:
        asked: Any = requires_access_connection("GET")(request, user)
        # Some versions of Airflow look up the teams of connections first.
        if inspect.isawaitable(asked):
            await asked
    except HTTPException:
        return False
    return True


def _passes(gate: Any, request: Request, user: Any) -> bool:
    try:
        gate(request=request, user=user)
    except HTTPException:
        return False
    return True


async def readable_dags(request: Request, user: GetUserDep) -> Readable:
    """Return what tells which DAGs a user may read, asked once for each."""
    return Readable(request, user)


class Readable:
    """
    Which DAGs a user may read.

    :param request: the request.
    :param user: who asks.
    """

    def __init__(self, request: Request, user: Any) -> None:
        self._request = request
        self._user = user
        self._known: dict[str, bool] = {}

    def __contains__(self, dag_id: str) -> bool:
        if dag_id not in self._known:
            self._known[dag_id] = may_read(dag_id, self._request, self._user)
        return self._known[dag_id]
