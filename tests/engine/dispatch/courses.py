"""Items on their way that go nowhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from airflow_provider_llmbatch.engine.dispatch.course import Course
from airflow_provider_llmbatch.engine.items import Request


def course_of(request: Request, *, ready_at: float, started_at: float) -> Course:
    """Return the course of a request at the only endpoint there is."""
    lane: Any = SimpleNamespace(route="only", learnt=[])
    return Course(
        request=request,
        lane=lane,
        home="only",
        remake=lambda _: request,
        group="",
        ready_at=ready_at,
        started_at=started_at,
    )
