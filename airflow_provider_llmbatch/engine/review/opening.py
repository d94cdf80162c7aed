"""Open a round: its tickets and their texts go to storage first, the file that makes them count last."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from airflow_provider_llmbatch.engine.journal import Storage, put_json
from airflow_provider_llmbatch.engine.review.storage import round_file, texts_file, tickets_file
from airflow_provider_llmbatch.engine.review.terms import Terms
from airflow_provider_llmbatch.engine.review.ticket import Ticket
from airflow_provider_llmbatch.errors import InputError

#: Bytes after which another file of texts begins, so that one look at an object store gets little.
TEXTS_BYTES = 2**20
#: Most tickets of a round.
MOST_TICKETS = 50_000


class Texts:
    """
    Writes the texts of a round's tickets.

    :param storage: the folder of the queue.
    :param round: which round.
    :param attempt: tells the files of this try from those of any other.
    """

    def __init__(self, storage: Storage, round: int, attempt: str) -> None:
        self._storage = storage
        self._round = round
        self._attempt = attempt
        self._file = 0
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, item: Any, messages: Any, row: Any) -> tuple[int, int]:
        """Add the texts of a ticket, and return where they are: the file's number, and the byte."""
        line = json.dumps({"item": item, "messages": messages, "row": row}, allow_nan=False).encode() + b"\n"
        if self._size and self._size + len(line) > TEXTS_BYTES:
            self.flush()
        place = (self._file, self._size)
        self._lines.append(line)
        self._size += len(line)
        return place

    def flush(self) -> None:
        """Store what was added."""
        if self._lines:
            name = texts_file(self._round, self._attempt, self._file)
            self._storage.put(name, iter(self._lines))
            self._file, self._lines, self._size = self._file + 1, [], 0


def publish(
    storage: Storage,
    round: int,
    attempt: str,
    tickets: Iterable[Ticket],
    *,
    folders: list[str],
    level: int,
    terms: Terms,
    occasion: str,
    at: float,
) -> None:
    """
    Open a round whose texts are stored; when another try has opened it meanwhile, that one counts.

    :param folders: the result folders that tickets point to.
    :param level: review round of the rows that its decisions make.
    :param occasion: what all tries of the task have in common until somebody clears it.
    :param at: Unix seconds.
    :raises InputError: when there are too many tickets.
    """
    listed = list(tickets)
    if len(listed) > MOST_TICKETS:
        raise InputError(
            f"{len(listed):,} items would wait for a person, {MOST_TICKETS:,} at most. "
            "Narrow what is reviewed, or mend what most of them have in common and clear the dispatch task."
        )
    storage.put(tickets_file(round, attempt), _lines(listed))
    head = {
        "round": round,
        "attempt": attempt,
        "tickets": len(listed),
        "folders": folders,
        "level": level,
        "terms": terms.to_json(),
        "occasion": occasion,
        "opened_at": at,
    }
    try:
        put_json(storage, round_file(round), head)
    except FileExistsError:
        return


def _lines(tickets: Iterable[Ticket]) -> Iterator[bytes]:
    for ticket in tickets:
        yield json.dumps(ticket.to_json(), separators=(",", ":")).encode() + b"\n"
