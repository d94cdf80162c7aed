"""Which queues there are: one small file each, so that nobody has to search the results for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from airflow_provider_llmbatch.engine.identity import stable_key
from airflow_provider_llmbatch.engine.journal import Storage, put_json, read_json

State = Literal["open", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A review task instance that has a queue."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    #: Unix seconds at which its latest round was opened
    opened_at: float

    @property
    def key(self) -> str:
        """Its name in the inbox."""
        return stable_key(self.dag_id, self.run_id, self.task_id, self.map_index)


class Inbox:
    """
    The queues of an installation.

    :param storage: a folder of its own.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def put(self, post: Post, state: State) -> None:
        """Say that a queue waits for people, or is done."""
        for other in ("open", "done"):
            if other == state:
                put_json(self._storage, _file(other, post.key), asdict(post), replace=True)
            else:
                self._storage.remove(_file(other, post.key))

    def remove(self, post: Post) -> None:
        """Take a queue that is deleted off the list."""
        for state in ("open", "done"):
            self._storage.remove(_file(state, post.key))

    def posts(self, *states: State) -> list[Post]:
        """
        Return the queues in these states, the one that was opened last first.

        :raises StoreError: when they cannot be read.
        """
        names = [name for name in self._storage.names() if name.partition("-")[0] in states]
        found = [post for name in names if (post := self._post(name)) is not None]
        return sorted(found, key=lambda post: -post.opened_at)

    def _post(self, name: str) -> Post | None:
        data = read_json(self._storage, name)
        if data is None:
            return None
        del data["schema_version"]
        return Post(**data)


def _file(state: State, key: str) -> str:
    return f"{state}-{key}.json"
