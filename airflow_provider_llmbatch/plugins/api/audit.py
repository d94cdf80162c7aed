"""Entries in Airflow's audit log: who did what to which queue, and no text of any item."""

from __future__ import annotations

from typing import Any

import anyio.from_thread
from airflow.api_fastapi.logging.decorators import action_logging
from starlette.requests import Request


def audit(event: str, request: Request, session: Any, user: Any, **figures: Any) -> None:
    """
    Write an entry; called from a thread that serves a request.

    Airflow would log the body as well, which here holds outputs; so it gets to see a request without one.

    :param event: what was done.
    :param figures: small values that say how much of it.
    """
    scope = {
        **request.scope,
        "headers": [],
        "path_params": {**request.path_params, **figures},
    }
    anyio.from_thread.run(action_logging(event), Request(scope), session, user)
