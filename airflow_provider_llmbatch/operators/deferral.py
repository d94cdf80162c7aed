"""Give the worker slot back while nothing can be sent, and go on where it was."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NoReturn

from airflow_provider_llmbatch.errors import StoppedError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

#: Resumed tasks are spread over this share of their wait, so that they do not all come back at once.
JITTER = 0.1


def defer(
    task: BaseOperator, why: StoppedError, *, since: float | None, now: float, max_wait_s: float
) -> NoReturn:
    """
    Defer a task until it makes sense to go on.

    The trigger only waits for a moment, so it may be restarted, and fire twice: what follows looks at
    storage for what is left. A deferred task holds no lease, no claim and no slot.

    :param why: says when to go on.
    :param since: Unix seconds of the first deferral of this try; None at the first.
    :param max_wait_s: seconds after which waiting is given up.
    :raises TaskDeferred: to leave the worker.
    :raises StoppedError: when it has waited long enough.
    """
    from airflow.providers.standard.triggers.temporal import DateTimeTrigger

    began = now if since is None else since
    wait_s = (why.retry_after_s or 0.0) * (1.0 + JITTER * random.random())
    if now + wait_s - began > max_wait_s:
        waited = f"It has waited {now - began:.0f} s, and max_wait is {max_wait_s:.0f}."
        raise StoppedError(f"{why} {waited}", retryable=True)
    moment = datetime.fromtimestamp(now, UTC) + timedelta(seconds=wait_s)
    task.log.info("%s The task leaves its worker, and goes on at %s.", why, moment.isoformat("T", "seconds"))
    task.defer(trigger=DateTimeTrigger(moment=moment), method_name="go_on", kwargs={"since": began})
