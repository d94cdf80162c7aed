"""The routes under ``/_sim``: look at what arrived, and change the simulator while it runs."""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.simulator.scenario import check_scenario
from airflow_provider_llmbatch.simulator.service import Service
from airflow_provider_llmbatch.simulator.shapes import ApiError

SERVICE = web.AppKey("service", Service)


class _Limits(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rpm: PositiveInt | None = None
    tpm: PositiveInt | None = None


def routes() -> list[web.RouteDef]:
    """Return the control routes."""
    return [
        web.get("/_sim/arrivals", arrivals),
        web.get("/_sim/stats", stats),
        web.post("/_sim/limits", limits),
        web.post("/_sim/scenario", scenario),
        web.post("/_sim/reset", reset),
    ]


async def arrivals(request: web.Request) -> web.Response:
    """Return the arrivals with a number above ``since``."""
    since = request.query.get("since", "0")
    if not since.isdigit():
        raise ApiError(400, f"since must be the number of an arrival, got {since!r}")
    log = request.app[SERVICE].log
    return web.json_response([arrival.to_json() for arrival in log.since(int(since))])


async def stats(request: web.Request) -> web.Response:
    """Return totals and the fullest windows."""
    return web.json_response(request.app[SERVICE].stats())


async def limits(request: web.Request) -> web.Response:
    """Set other limits, from now on; return those in force."""
    try:
        wanted = _Limits.model_validate(await _json(request))
    except ValidationError as error:
        raise ApiError(400, f"limits: {error.errors(include_url=False)}") from error
    admission = request.app[SERVICE].admission
    admission.change(rpm=wanted.rpm, tpm=wanted.tpm)
    return web.json_response({"rpm": admission.limits["requests"], "tpm": admission.limits["tokens"]})


async def scenario(request: web.Request) -> web.Response:
    """Play another scenario from its beginning; an empty object plays none."""
    try:
        wanted = check_scenario(await _json(request), source="in the request")
    except ConfigurationError as error:
        raise ApiError(400, str(error)) from error
    request.app[SERVICE].play(wanted)
    return web.json_response({"rules": len(wanted.rules)})


async def reset(request: web.Request) -> web.Response:
    """Forget all arrivals and everything taken, and play the scenario from its beginning."""
    request.app[SERVICE].reset()
    return web.json_response({})


async def _json(request: web.Request) -> Any:
    try:
        return json.loads(await request.read())
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
