"""How credentials and endpoints fare, over HTTP; how a person has that forgotten, and pins a route."""

from __future__ import annotations

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Request
from pydantic import BaseModel

from airflow_provider_llmbatch.operators import routing
from airflow_provider_llmbatch.plugins.api.answers import moment
from airflow_provider_llmbatch.plugins.api.audit import audit
from airflow_provider_llmbatch.plugins.api.gates import (
    FROM_HERE,
    MAY_CHANGE_CONNECTIONS,
    MAY_READ_CONNECTION,
)
from airflow_provider_llmbatch.plugins.api.health import GateBody, ParkedShape, parked_shape

router = APIRouter(prefix="/api/v1/routes")
_MAY_CHANGE = [MAY_CHANGE_CONNECTIONS, FROM_HERE]


class PinShape(BaseModel):
    """Who has pinned an endpoint."""

    by: str
    at: str


class RouteShape(BaseModel):
    """A credential or an endpoint."""

    gate: str
    parked: ParkedShape | None
    answered_at: str | None
    failed: int
    p95_ms: float | None
    pin: PinShape | None
    may_be_pinned: bool


class RouteList(BaseModel):
    """All that were heard of lately."""

    routes: list[RouteShape]


@router.get("", dependencies=[MAY_READ_CONNECTION])
def list_routes() -> RouteList:
    """List them: what is pinned first, then what is parked."""
    found = sorted(routing.known(), key=lambda one: (one.pin is None, one.condition.closed is None))
    return RouteList(routes=[_shape(one) for one in found])


@router.post("/reset", dependencies=_MAY_CHANGE)
def reset(body: GateBody, request: Request, user: GetUserDep, session: SessionDep) -> RouteList:
    """Forget all that was seen at a credential or an endpoint."""
    routing.reset(body.gate)
    audit("llmbatch_reset", request, session, user, gate=body.gate)
    return list_routes()


@router.post("/pin", dependencies=_MAY_CHANGE)
def pin(body: GateBody, request: Request, user: GetUserDep, session: SessionDep) -> RouteList:
    """Have all runs whose routes lead to an endpoint send everything there."""
    routing.pin(body.gate, by=user.get_name())
    audit("llmbatch_pin", request, session, user, gate=body.gate)
    return list_routes()


@router.post("/unpin", dependencies=_MAY_CHANGE)
def unpin(body: GateBody, request: Request, user: GetUserDep, session: SessionDep) -> RouteList:
    """Let the rules of the routes decide again."""
    routing.unpin(body.gate)
    audit("llmbatch_unpin", request, session, user, gate=body.gate)
    return list_routes()


def _shape(known: routing.Known) -> RouteShape:
    condition = known.condition
    return RouteShape(
        gate=condition.gate,
        parked=None if condition.closed is None else parked_shape(condition.closed),
        answered_at=None if condition.answered_at is None else moment(condition.answered_at),
        failed=condition.failed,
        p95_ms=known.p95_ms,
        pin=None if known.pin is None else PinShape(by=known.pin.by, at=moment(known.pin.at)),
        may_be_pinned=condition.offered,
    )
