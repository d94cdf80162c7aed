"""What was decided in a round, in order."""

from __future__ import annotations

from functools import partial

from airflow_provider_llmbatch.engine.journal import Journal, Storage
from airflow_provider_llmbatch.engine.review.storage import entry_file, pack_file


class Log(Journal):
    """
    The log of a round.

    :param storage: the folder of the queue.
    :param round: which round.
    """

    def __init__(self, storage: Storage, round: int) -> None:
        super().__init__(storage, partial(entry_file, round), partial(pack_file, round))
