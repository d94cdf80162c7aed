"""Which credentials and endpoints are parked, over HTTP, and how a person opens one."""

from __future__ import annotations

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Request
from pydantic import BaseModel

from airflow_provider_llmbatch.engine.state.protocols import Closed
from airflow_provider_llmbatch.operators.parked import parked, unpark
from airflow_provider_llmbatch.plugins.api.answers import moment
from airflow_provider_llmbatch.plugins.api.audit import audit
from airflow_provider_llmbatch.plugins.api.gates import (
    FROM_HERE,
    MAY_CHANGE_CONNECTIONS,
    MAY_READ_CONNECTION,
)
from airflow_provider_llmbatch.plugins.api.shapes import Asked

router = APIRouter(prefix="/api/v1/parked")


class GateBody(Asked):
    """The gate to open, as it is listed."""

    gate: str


class ParkedShape(BaseModel):
    """A credential or an endpoint that nobody uses for now."""

    gate: str
    since: str
    #: when it is tried again; None when a person has to say so
    until: str | None
    reason: str


class ParkedList(BaseModel):
    """All of them."""

    parked: list[ParkedShape]


@router.get("", dependencies=[MAY_READ_CONNECTION])
def list_parked() -> ParkedList:
    """List what is parked, the latest first."""
    return _listed()


@router.post("/open", dependencies=[MAY_CHANGE_CONNECTIONS, FROM_HERE])
def open_gate(body: GateBody, request: Request, user: GetUserDep, session: SessionDep) -> ParkedList:
    """Let calls through a gate again; one that still fails is parked anew."""
    unpark(body.gate)
    audit("llmbatch_unpark", request, session, user, gate=body.gate)
    return _listed()


def _listed() -> ParkedList:
    return ParkedList(parked=[parked_shape(each) for each in sorted(parked(), key=lambda each: -each.since)])


def parked_shape(closed: Closed) -> ParkedShape:
    """Return how a gate is parked."""
    return ParkedShape(
        gate=closed.gate,
        since=moment(closed.since),
        until=None if closed.until is None else moment(closed.until),
        reason=closed.reason,
    )
