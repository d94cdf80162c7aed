"""
What was decided in a round, in order: an append-only log that any number of processes may write.

An entry is a file that is created exclusively under the next number. Who comes second finds the number
taken, reads what the first one wrote, and looks again whether there is still something to decide.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from airflow_provider_llmbatch.engine.review.storage import Storage, entry_file, pack_file, put_json, read
from airflow_provider_llmbatch.errors import StoreError

#: Entries that are packed into one file.
PACK = 100

Entry = dict[str, Any]


class Log:
    """
    The log of a round.

    :param storage: the folder of the queue.
    :param round: which round.
    """

    def __init__(self, storage: Storage, round: int) -> None:
        self._storage = storage
        self._round = round
        #: entries that were read
        self.read = 0

    def news(self) -> Iterator[Entry]:
        """
        Yield the entries that were not read yet.

        :raises StoreError: when one cannot be read.
        """
        while True:
            entries = self._pack() if self.read % PACK == 0 else None
            if entries is None:
                name = entry_file(self._round, self.read + 1)
                content = read(self._storage, name)
                if content is None:
                    return
                entries = [self._entry(name, content)]
            for entry in entries:
                self.read += 1
                yield entry

    def append(self, entry: Entry) -> bool:
        """
        Add an entry after those that were read; False when somebody else was faster.

        When this returns True, the entry is on storage, and was read.

        :raises StoreError: when it cannot be written.
        """
        try:
            put_json(self._storage, entry_file(self._round, self.read + 1), entry)
        except FileExistsError:
            return False
        self.read += 1
        if self.read % PACK == 0:
            self._put_pack()
        return True

    def _pack(self) -> list[Entry] | None:
        name = pack_file(self._round, self.read // PACK)
        content = read(self._storage, name)
        if content is None:
            return None
        return [self._entry(name, line) for line in content.splitlines()]

    def _put_pack(self) -> None:
        """Put the last entries into one file; without it they are read one by one."""
        first = self.read - PACK + 1
        lines = [read(self._storage, entry_file(self._round, n)) for n in range(first, self.read + 1)]
        # The entries themselves are stored; whoever packs them next time will do.
        with contextlib.suppress(FileExistsError, StoreError):
            content = b"".join(line + b"\n" for line in lines if line is not None)
            self._storage.put(pack_file(self._round, first // PACK), iter([content]))

    def _entry(self, name: str, content: bytes) -> Entry:
        try:
            entry: Entry = json.loads(content)
            entry["type"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{self._storage.uri}/{name} cannot be read: {error!r}. Restore it: it holds decisions."
            ) from error
        return entry
