"""Find the log of a rollout; each process keeps the ones that it was asked for last in memory."""

from __future__ import annotations

import threading
from functools import lru_cache

from airflow_provider_llmbatch.engine.journal import Person, read
from airflow_provider_llmbatch.engine.rollout.standing import Act, Standing
from airflow_provider_llmbatch.engine.rollout.steps import Steps, entry_file
from airflow_provider_llmbatch.operators.places import rollout_folder
from airflow_provider_llmbatch.operators.storage import open_folder
from airflow_provider_llmbatch.settings import load_settings

#: Logs in memory. Storage is the truth: one that was dropped is read again.
KEPT = 64


class Log:
    """
    The steps of a rollout, for many threads.

    :param path: its folder.
    """

    def __init__(self, path: str) -> None:
        self.folder = open_folder(path, read_only=True)
        self.steps = Steps(self.folder)
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """
        Whether it was opened.

        :raises StoreError: when that cannot be read.
        """
        with self._lock:
            return self.steps.refresh() is not None

    def standing(self) -> Standing:
        """
        Return where it stands now.

        :raises StoreError: when it cannot be read.
        """
        with self._lock:
            return self.steps.standing()

    def act(self, act: Act, *, by: Person, why: str, at: float, to: float | None, after: int | None) -> None:
        """
        Do what a person wants, by the rules of the last step.

        :raises InputError: see :meth:`.engine.rollout.steps.Steps.act`.
        """
        with self._lock:
            rules = self.steps.standing().rules
            self.steps.act(act, rules, by=by, why=why, at=at, to=to, after=after)


def log_of(dag_id: str, name: str) -> Log | None:
    """
    Return the log of a rollout; None when there is none.

    :raises StoreError: when it cannot be read.
    """
    path = rollout_folder(load_settings().results_path, dag_id, name)
    log = _kept(path, read(open_folder(path, read_only=True), entry_file(1)))
    return log if log.is_open else None


@lru_cache(maxsize=KEPT)
def _kept(path: str, opening: bytes | None) -> Log:
    """Return the log in a folder; one that was opened anew is another one."""
    return Log(path)
