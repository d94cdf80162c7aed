"""Find the queue of a task instance; each process keeps the ones it was asked for last in memory."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from airflow_provider_llmbatch.engine.review.inbox import Inbox
from airflow_provider_llmbatch.engine.review.queue import Queue
from airflow_provider_llmbatch.engine.validate.schema import OutputSchema, output_schema
from airflow_provider_llmbatch.operators.places import inbox_folder, review_folder
from airflow_provider_llmbatch.settings import load_settings

#: Queues in memory, of some megabytes each. Storage is the truth: one that was dropped is read again.
KEPT = 16


class Who(NamedTuple):
    """A review task instance."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1


class Queues:
    """The queues that were asked for last, by the folders they are in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Queue] = OrderedDict()

    def of(self, who: Who) -> Queue | None:
        """
        Return a queue as it is now; None when its task has opened none.

        :raises StoreError: when it cannot be read.
        """
        from airflow_provider_llmbatch.operators.storage import open_folder

        path = review_folder(load_settings().results_path, *who)
        with self._lock:
            queue = self._kept.get(path) or Queue(open_folder(path, read_only=True))
        with queue.lock:
            queue.refresh()
            if queue.latest is None:
                return None
        with self._lock:
            # Two threads that missed it at once end with one and the same.
            queue = self._kept.setdefault(path, queue)
            self._kept.move_to_end(path)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return queue

    def inbox(self) -> Inbox:
        """Return the list of queues."""
        from airflow_provider_llmbatch.operators.storage import open_folder

        return Inbox(open_folder(inbox_folder(load_settings().results_path), read_only=True))


def schema_of(document: Mapping[str, Any] | None) -> OutputSchema:
    """Return the schema behind its JSON document; None stands for plain text."""
    return output_schema(None) if document is None else _compiled(json.dumps(document))


@lru_cache(maxsize=32)
def _compiled(document: str) -> OutputSchema:
    return output_schema(json.loads(document))
