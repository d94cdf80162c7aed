"""
The console's pages: one frame of HTML for all of them, and the scripts and colours that fill it.

Neither holds anything of a run. What the scripts show they ask of the API, which looks at who asks.
"""

from __future__ import annotations

from functools import lru_cache
from html import escape
from importlib.resources import files
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.status import HTTP_401_UNAUTHORIZED, HTTP_404_NOT_FOUND

from airflow_provider_llmbatch.plugins.llmbatch import URL_PREFIX, root

#: Scripts and styles come from here, requests go to here, and no text can become markup.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_KINDS = {"js": "text/javascript", "css": "text/css"}
_FRAME = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<link rel="stylesheet" href="{root}/static/console.css">
<script type="module" src="{root}/static/page.js"></script>
<script type="module" src="{root}/static/{script}.js"></script>
<main><p>Loading …</p><noscript>This page needs JavaScript.</noscript></main>
<div class="notice" role="status" aria-live="polite"></div>
</html>
"""

router = APIRouter()


def _page(title: str, script: str) -> HTMLResponse:
    return HTMLResponse(_FRAME.format(title=title, script=script, root=escape(root())), headers=HEADERS)


@router.get("/review")
def review_queues() -> HTMLResponse:
    """Show the list of queues."""
    return _page("Review queues", "queues")


@router.get("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/review")
def review(dag_id: str, run_id: str, task_id: str) -> HTMLResponse:
    """Show the queue of a review task."""
    return _page("Review", "review")


@router.get("/runs")
def runs() -> HTMLResponse:
    """Show how far the latest runs are."""
    return _page("Runs", "runs")


@router.get("/dags/{dag_id}/runs/{run_id}/progress")
def run(dag_id: str, run_id: str) -> HTMLResponse:
    """Show how far a run is."""
    return _page("Progress of a run", "runs")


@router.get("/rollouts")
def rollouts() -> HTMLResponse:
    """Show the list of rollouts."""
    return _page("Rollouts", "rollouts")


@router.get("/dags/{dag_id}/rollouts")
def rollouts_of(dag_id: str) -> HTMLResponse:
    """Show the rollouts of a DAG."""
    return _page("Rollouts of a DAG", "rollouts")


@router.get("/dags/{dag_id}/rollouts/{name}")
def rollout(dag_id: str, name: str) -> HTMLResponse:
    """Show a rollout."""
    return _page("Rollout", "rollouts")


@router.get("/routes")
def health() -> HTMLResponse:
    """Show which credentials and endpoints are parked."""
    return _page("Routes", "health")


@router.get("/costs")
def costs() -> HTMLResponse:
    """Show what runs have cost."""
    return _page("Costs", "costs")


@router.get("/static/{name}")
def static(name: str) -> Response:
    """Return one of the files that the pages are made of."""
    content = _contents().get(name)
    if content is None:
        raise HTTPException(HTTP_404_NOT_FOUND, "There is no such file.")
    kind = _KINDS.get(name.rpartition(".")[2], "text/plain")
    return Response(content, media_type=kind, headers=HEADERS)


@lru_cache(maxsize=1)
def _contents() -> dict[str, bytes]:
    """Return the files by their names: a name that is none of them leads nowhere."""
    return {each.name: each.read_bytes() for each in (files(__package__) / "static").iterdir()}


async def to_login(request: Request, error: Exception) -> Response:
    """Send a person who is not signed in to where one signs in, and programs away."""
    assert isinstance(error, AnyHTTPException)
    is_person = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if error.status_code != HTTP_401_UNAUTHORIZED or not is_person:
        return await http_exception_handler(request, error)
    # A proxy may have another name and scheme than this server knows of.
    here = quote(request.url.path.partition(URL_PREFIX)[2])
    query = f"?{request.url.query}" if request.url.query else ""
    back = quote(f"{root()}{here}{query}", safe="")
    return RedirectResponse(f"{root().removesuffix(URL_PREFIX)}/api/v2/auth/login?next={back}")
