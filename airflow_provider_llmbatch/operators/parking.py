"""
Park a task until people have decided, without a worker.

On Airflow 3.3 it waits in the state ``awaiting_input``, without a triggerer as well; on 3.2 it is deferred
to the trigger of Airflow's own human-in-the-loop operators. Either way it shows under Required Actions, and
goes on when that request is answered, be it by the console or, every few minutes, by nobody.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.compat import AIRFLOW_V_3_3_PLUS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import BaseOperator, Context

#: What the request can be answered with: look whether enough is decided, or do not wait for the rest.
LOOK, APPLY = "Look again", "Apply what is decided"

#: Constant: Airflow keeps the words of a task's first request.
SUBJECT = "Items of an LLM batch wait for a decision"
_BODY = """Decide in the [queue]({address}). The task goes on by itself when enough is decided.

*{look}* only looks whether that is so. *{apply}* does not wait for the rest.
"""


def park(
    task: BaseOperator,
    context: Context,
    *,
    address: str,
    assigned: Sequence[Mapping[str, str]],
    seconds: float,
    is_needed: Callable[[], bool],
) -> None:
    """
    Ask for people, and leave the worker; return when that has become needless meanwhile.

    The request is written first, and looked for a last time whether it is needed then: a decision is either
    seen by that look, or finds a request that it can answer.

    :param address: of the queue's page.
    :param assigned: who is asked; whoever may answer for the DAG when empty.
    :param seconds: after which the task looks for itself.
    :raises BaseException: Airflow's signal to leave the worker.
    """
    from airflow.sdk.execution_time.hitl import upsert_hitl_detail

    request: dict[str, Any] = {"options": [LOOK, APPLY], "defaults": [LOOK], "params": {}, "multiple": False}
    ti_id = context["ti"].id
    upsert_hitl_detail(
        ti_id=ti_id,
        subject=SUBJECT,
        body=_BODY.format(address=address, look=LOOK, apply=APPLY),
        assigned_users=list(assigned),  # type: ignore[arg-type]
        **request,
    )
    if not is_needed():
        return None
    timeout = timedelta(seconds=seconds)
    if AIRFLOW_V_3_3_PLUS:
        from airflow.sdk.exceptions import TaskAwaitingInput

        raise TaskAwaitingInput(method_name="go_on", timeout=timeout)
    from airflow.providers.standard.triggers.hitl import HITLTrigger
    from airflow.sdk.timezone import utcnow

    trigger = HITLTrigger(ti_id=ti_id, timeout_datetime=utcnow() + timeout, **request)
    task.defer(trigger=trigger, method_name="go_on")


def said(event: Any) -> str | None:
    """Return what the request was answered with; None when the task goes on for another reason."""
    chosen = event.get("chosen_options") if isinstance(event, dict) else None
    return chosen[0] if chosen else None
