"""Tell people what a task has found."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier, Context

    from airflow_provider_llmbatch.engine.observe.log import Log


def tell(notifiers: Sequence[BaseNotifier], context: Context, told: Mapping[str, Any], log: Log) -> None:
    """
    Tell people; what cannot be delivered is told in the log, and nothing more.

    :param told: what templates of the notifiers can read beside the context.
    """
    values: Any = {**context, **told}
    for notifier in notifiers:
        try:
            # Rendering changes it, and whoever is told next has other words.
            copy.copy(notifier)(values)
        # a notifier may be anybody's
        except Exception as error:
            log.warning("%s has told nobody: %s", type(notifier).__name__, error)
