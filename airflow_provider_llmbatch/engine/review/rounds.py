"""A round of review in memory: its tickets, and what its log says of them."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from airflow_provider_llmbatch.engine.journal import Entry, Person, Storage, put_json, read, read_json
from airflow_provider_llmbatch.engine.review.decision import Decision, Wish
from airflow_provider_llmbatch.engine.review.log import Log
from airflow_provider_llmbatch.engine.review.storage import applied_file, round_file, texts_file, tickets_file
from airflow_provider_llmbatch.engine.review.terms import ClosedBy, Terms
from airflow_provider_llmbatch.engine.review.ticket import Ticket
from airflow_provider_llmbatch.errors import InputError, StoreError

State = Literal["open", "closed", "applied"]


class Round:
    """
    One round of a queue; made with :func:`load`.

    :param storage: the folder of the queue.
    :param number: from 1.
    :param head: content of the file that opened it.
    """

    def __init__(self, storage: Storage, number: int, head: Mapping[str, Any]) -> None:
        self._storage = storage
        self.number = number
        self.terms = Terms.from_json(head["terms"])
        #: result folders that tickets point to, by their numbers
        self.folders: tuple[str, ...] = tuple(head["folders"])
        #: review round of the rows that its decisions make
        self.level: int = head["level"]
        self.occasion: str = head["occasion"]
        self.opened_at: float = head["opened_at"]
        self._attempt: str = head["attempt"]
        #: how many tickets it has
        self.size: int = head["tickets"]
        self._tickets: dict[str, Ticket] | None = None
        #: number and content of the file of texts that was read last
        self._texts: tuple[int, bytes] = (-1, b"")
        #: what stands, by ticket
        self.decisions: dict[str, Decision] = {}
        #: all decisions, in order, those that were replaced included
        self.history: list[Decision] = []
        self.closed_by: ClosedBy | None = None
        self.closed_at: float | None = None
        self._is_applied = False
        self.log = Log(storage, number)

    @property
    def tickets(self) -> Mapping[str, Ticket]:
        """
        The tickets in the order of folders and indexes, read when they are first asked for.

        :raises StoreError: when they cannot be read.
        """
        if self._tickets is None:
            self._tickets = self._read_tickets()
        return self._tickets

    def _read_tickets(self) -> dict[str, Ticket]:
        name = tickets_file(self.number, self._attempt)
        lines = (read(self._storage, name) or b"").splitlines()
        try:
            if len(lines) != self.size:
                raise ValueError(f"it has {len(lines)} tickets of {self.size}")
            found = (Ticket.from_json(json.loads(line)) for line in lines)
            return {ticket.id: ticket for ticket in found}
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self._storage.uri}/{name} cannot be read: {error!r}. Restore it.") from error

    def refresh(self) -> None:
        """
        Read what was decided since the last look.

        :raises StoreError: when that cannot be read.
        """
        for entry in self.log.news():
            try:
                self.enter(entry)
            except (KeyError, TypeError, ValueError) as error:
                raise StoreError(
                    f"Entry {self.log.read} of round {self.number} in {self._storage.uri} cannot be read: "
                    f"{error!r}. Restore it: it holds decisions."
                ) from error
        if self.closed_by is not None and not self._is_applied:
            self._is_applied = read(self._storage, applied_file(self.number)) is not None

    def enter(self, entry: Entry) -> None:
        """Take a log entry in."""
        if entry["type"] == "closed":
            self.closed_by, self.closed_at = entry["by"], entry["at"]
            self._decide_the_rest(entry)
            return
        decision = Decision.from_json(entry)
        self.history.append(decision)
        for ticket in decision.tickets:
            self.decisions[ticket] = decision

    def _decide_the_rest(self, entry: Entry) -> None:
        """Undecided tickets become what the entry says; those that cannot be accepted are left."""
        kind = entry["default"]
        if kind not in ("retry", "accept", "skip"):
            return
        rest = tuple(ticket.id for ticket in self.open_tickets() if kind != "accept" or ticket.acceptable)
        if rest:
            wish = Wish(kind=kind, why=f"{entry['by']}: nobody had decided")
            decision = Decision(id=entry["id"], wish=wish, by=Person(), at=entry["at"], tickets=rest)
            self.history.append(decision)
            self.decisions.update(dict.fromkeys(rest, decision))

    @property
    def state(self) -> State:
        """Whether it takes decisions, was closed, or was applied as well."""
        if self.closed_by is None:
            return "open"
        return "applied" if self._is_applied else "closed"

    @property
    def needed(self) -> int:
        """How many decisions are enough."""
        return self.terms.needed(self.size)

    @property
    def is_complete(self) -> bool:
        """Whether enough was decided."""
        return len(self.decisions) >= self.needed

    def open_tickets(self) -> list[Ticket]:
        """Return the tickets that nobody has decided."""
        return [ticket for id, ticket in self.tickets.items() if id not in self.decisions]

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how many tickets have which outcome, error, model, reason and decision."""
        tickets = self.tickets.values()
        fields = {
            "outcome": (ticket.outcome.value for ticket in tickets),
            "error": (ticket.error for ticket in tickets),
            "model": (ticket.model for ticket in tickets),
            "reason": (ticket.reason for ticket in tickets),
            "decision": (self.kind_of(ticket) for ticket in tickets),
        }
        return {
            name: dict(Counter(value for value in values if value is not None).most_common())
            for name, values in fields.items()
        }

    def kind_of(self, ticket: Ticket) -> str:
        """Return what was decided about a ticket; ``open`` when nothing was."""
        decision = self.decisions.get(ticket.id)
        return "open" if decision is None else decision.wish.kind

    def texts(self, ticket: Ticket, *, keep: bool = False) -> dict[str, Any]:
        """
        Return a ticket's texts: ``item``, ``messages`` and the result row ``row``.

        :param keep: keep the file in memory, for the tickets that follow. Who serves people does not: texts
            may be erased at any time.
        :raises StoreError: when they cannot be read.
        """
        name = texts_file(self.number, self._attempt, ticket.file)
        try:
            number, content = self._texts
            if number != ticket.file:
                with self._storage.open(name) as file:
                    content = file.read()
            if keep:
                self._texts = ticket.file, content
            end = content.index(b"\n", ticket.offset)
            found: dict[str, Any] = json.loads(content[ticket.offset : end])
        except (FileNotFoundError, ValueError) as error:
            raise StoreError(f"{self._storage.uri}/{name} cannot be read: {error!r}. Restore it.") from error
        return found

    def applied(self) -> None:
        """Note that what was decided has been done."""
        with contextlib.suppress(FileExistsError):
            put_json(self._storage, applied_file(self.number), {"round": self.number})
        self._is_applied = True


def load(storage: Storage, number: int) -> Round | None:
    """
    Read a round; None when it was not opened.

    :raises InputError: when another version of the package wrote it.
    :raises StoreError: when it cannot be read.
    """
    head = read_json(storage, round_file(number))
    if head is None:
        return None
    name = round_file(number)
    try:
        found = Round(storage, number, head)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{storage.uri}/{name} cannot be read: {error!r}. Restore it.") from error
    found.refresh()
    return found


def refuse_unknown(round: Round, tickets: Iterable[str]) -> None:
    """
    Refuse tickets that are not of the round.

    :raises InputError: naming the first.
    """
    for ticket in tickets:
        if ticket not in round.tickets:
            raise InputError(f"There is no ticket {ticket!r} in round {round.number}.")
