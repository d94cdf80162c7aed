"""
The declaration of the console: what Airflow mounts under ``/llmbatch``.

Every process of Airflow loads this module, tasks included, so it imports next to nothing; the
application behind it is built at its first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import conf

#: Path on the API server that the console answers under.
URL_PREFIX = "/llmbatch"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class LazyApp:
    """
    An ASGI application that is built at its first request.

    :param build: makes the application.
    """

    def __init__(self, build: Callable[[], ASGIApp]) -> None:
        self._build = build
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on."""
        if self._app is None:
            self._app = self._build()
        await self._app(scope, receive, send)


def _build() -> ASGIApp:
    from airflow_provider_llmbatch.plugins.app import create_app

    return create_app()


def root() -> str:
    """Return the path of the console as a browser sees it: below that of ``[api] base_url``."""
    return urlsplit(conf.get("api", "base_url", fallback="/")).path.rstrip("/") + URL_PREFIX


#: Airflow fills in what stands in braces.
_TASK = "dags/{DAG_ID}/runs/{RUN_ID}/tasks/{TASK_ID}"


class LLMBatchPlugin(AirflowPlugin):
    """Mount the console, and put its pages where people look for them."""

    name = "llmbatch"
    external_views = [  # noqa: RUF012
        {
            "name": "LLM review",
            "href": f"{root()}/review",
            "destination": "nav",
            "category": "browse",
            "url_route": "llmbatch-review",
        },
        {
            "name": "LLM runs",
            "href": f"{root()}/runs",
            "destination": "nav",
            "category": "browse",
            "url_route": "llmbatch-runs",
        },
        {
            "name": "LLM costs",
            "href": f"{root()}/costs",
            "destination": "nav",
            "category": "browse",
            "url_route": "llmbatch-costs",
        },
        {
            "name": "LLM rollouts",
            "href": f"{root()}/rollouts",
            "destination": "nav",
            "category": "browse",
            "url_route": "llmbatch-rollouts",
        },
        {
            "name": "LLM rollouts",
            "href": f"{root()}/dags/{{DAG_ID}}/rollouts",
            "destination": "dag",
            "url_route": "llmbatch-rollouts-dag",
        },
        {
            "name": "LLM routes",
            "href": f"{root()}/routes",
            "destination": "nav",
            "category": "admin",
            "url_route": "llmbatch-routes",
        },
        {
            "name": "LLM progress",
            "href": f"{root()}/dags/{{DAG_ID}}/runs/{{RUN_ID}}/progress",
            "destination": "dag_run",
            "url_route": "llmbatch-progress",
        },
        {
            "name": "LLM review",
            "href": f"{root()}/{_TASK}/review?map_index={{MAP_INDEX}}",
            "destination": "task_instance",
            "url_route": "llmbatch-review-task",
        },
    ]
    fastapi_apps = [{"name": "llmbatch", "app": LazyApp(_build), "url_prefix": URL_PREFIX}]  # noqa: RUF012
