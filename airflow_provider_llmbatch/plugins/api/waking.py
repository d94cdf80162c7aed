"""Wake a parked review task, by the answer that a person could give to it in Airflow's own pages."""

from __future__ import annotations

import logging
from typing import Any

from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
from fastapi import HTTPException

from airflow_provider_llmbatch.operators.parking import LOOK
from airflow_provider_llmbatch.plugins.api.queues import Who

_log = logging.getLogger(__name__)


def wake(who: Who, user: Any, session: Any) -> tuple[bool, str]:
    """
    Let a task go on that waits; return whether it did, and a sentence.

    A task that does not wait, as it was woken before, is left alone. What goes wrong here costs nothing but
    time: decisions are stored, and the task looks for itself every few minutes.

    :param user: whose answer it is.
    :param session: of Airflow's database.
    """
    try:
        update_hitl_detail(
            dag_id=who.dag_id,
            dag_run_id=who.run_id,
            task_id=who.task_id,
            map_index=who.map_index,
            update_hitl_detail_payload=UpdateHITLDetailPayload(chosen_options=[LOOK]),
            user=user,
            session=session,
        )
        session.commit()
    except HTTPException as refusal:
        session.rollback()
        return False, f"The task was not waiting: {refusal.detail}"
    # the driver of any database may fail in its own way
    except Exception as error:
        session.rollback()
        _log.warning("Task %s could not be woken, and will look for itself: %r", who, error)
        return False, "The task could not be woken now; it looks for itself every few minutes."
    return True, "The task goes on."
