"""The console's application: pages over what the tasks wrote, behind Airflow's own permissions."""

from __future__ import annotations

import functools

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag, requires_authenticated
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.status import (
    HTTP_422_UNPROCESSABLE_CONTENT,
    HTTP_500_INTERNAL_SERVER_ERROR,
    HTTP_503_SERVICE_UNAVAILABLE,
)

from airflow_provider_llmbatch.errors import ConfigurationError, InputError, StoreError
from airflow_provider_llmbatch.plugins import console, stops
from airflow_provider_llmbatch.plugins.api import costs, health, progress, rollouts, routing
from airflow_provider_llmbatch.plugins.api import routes as api
from airflow_provider_llmbatch.plugins.pages import report_page

#: Pages run no script and load nothing; Airflow's own pages may frame them.
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

router = APIRouter()


@router.get(
    "/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/report",
    dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE))],
)
def report(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> HTMLResponse:
    """Show the report of a task instance, or how far it is; what still changes is asked for again."""
    page = report_page(dag_id, run_id, task_id, map_index)
    again = {} if page.refresh_s is None else {"Refresh": str(page.refresh_s)}
    return HTMLResponse(page.html, status_code=page.status, headers={**PAGE_HEADERS, **again})


async def _not_kept(response: Response) -> None:
    """Let no cache keep what only some may see, and no browser take data for a page."""
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"


def create_app() -> FastAPI:
    """Build the application; nothing of it answers to anonymous callers."""
    app = FastAPI(
        title="LLM batches",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(requires_authenticated()), Depends(_not_kept)],
    )
    app.include_router(router)
    app.include_router(console.router)
    app.include_router(stops.router)
    app.include_router(api.router)
    app.include_router(progress.router)
    app.include_router(health.router)
    app.include_router(routing.router)
    app.include_router(costs.router)
    app.include_router(rollouts.router)
    app.add_exception_handler(HTTPException, console.to_login)
    for error, code in _STATUS.items():
        app.add_exception_handler(error, functools.partial(_told, code))
    return app


#: What goes wrong with what was asked for, and with where it is kept.
_STATUS = {
    InputError: HTTP_422_UNPROCESSABLE_CONTENT,
    ConfigurationError: HTTP_500_INTERNAL_SERVER_ERROR,
    StoreError: HTTP_503_SERVICE_UNAVAILABLE,
}


async def _told(code: int, request: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, status_code=code)
