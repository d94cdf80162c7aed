"""
The queue of a review task: its rounds, and the two things that change them, deciding and closing.

Everything is read from storage, so any process may serve a queue, and a new one begins where another ended.
Methods may be called by several threads.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_provider_llmbatch.engine.journal import Entry, Person, Storage, put_json, read_json
from airflow_provider_llmbatch.engine.review import rounds
from airflow_provider_llmbatch.engine.review.decision import Decision, Wish
from airflow_provider_llmbatch.engine.review.rounds import Round
from airflow_provider_llmbatch.engine.review.storage import DONE_FILE, alerted_file
from airflow_provider_llmbatch.engine.review.terms import ClosedBy
from airflow_provider_llmbatch.engine.review.ticket import Ticket
from airflow_provider_llmbatch.errors import InputError

State = Literal["open", "applying", "done"]

#: Tells decisions apart.
MakeId = Callable[[], object]


@dataclass(slots=True, kw_only=True)
class Decided:
    """What became of a wish."""

    #: tickets that it decided
    decided: tuple[str, ...] = ()
    #: tickets of which the same person had said the same before
    already: tuple[str, ...] = ()
    #: tickets that were decided otherwise or by somebody else, and what stands; None: the round is closed
    conflicts: list[tuple[str, Decision | None]] = field(default_factory=list)
    #: tickets that it cannot be done with, and why
    refused: list[tuple[str, str]] = field(default_factory=list)


class Queue:
    """
    A queue.

    :param storage: the folder of its task.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.lock = threading.RLock()
        self._rounds: list[Round] = []
        self._done: dict[str, Any] | None = None

    @property
    def rounds(self) -> Sequence[Round]:
        """The rounds, as of the last look."""
        return self._rounds

    @property
    def latest(self) -> Round | None:
        """The round that was opened last."""
        return self._rounds[-1] if self._rounds else None

    @property
    def done(self) -> dict[str, Any] | None:
        """What came of the review: ``manifests``, ``occasion``; None as long as it is not over."""
        return self._done

    @property
    def state(self) -> State:
        """Whether it takes decisions, its task is busy with them, or all is over."""
        if self._done is not None:
            return "done"
        latest = self.latest
        return "open" if latest is not None and latest.state == "open" else "applying"

    def refresh(self) -> None:
        """
        Look what has changed on storage.

        :raises StoreError: when that cannot be read.
        """
        with self.lock:
            if self.latest is not None and self.latest.state != "applied":
                self.latest.refresh()
            while (found := rounds.load(self.storage, len(self._rounds) + 1)) is not None:
                self._rounds.append(found)
            self._done = read_json(self.storage, DONE_FILE)

    def round(self, number: int | None = None) -> Round:
        """
        Return a round, the latest when no number is given.

        :raises InputError: when there is none.
        """
        found = self.latest if number is None else None
        if number is not None and 1 <= number <= len(self._rounds):
            found = self._rounds[number - 1]
        if found is None:
            raise InputError(f"There is no round {number or 1} in {self.storage.uri}.")
        return found

    def decide(
        self,
        number: int,
        tickets: Sequence[str],
        wish: Wish,
        by: Person,
        *,
        at: float,
        replaces: str | None = None,
        make_id: MakeId = uuid.uuid4,
    ) -> Decided:
        """
        Decide tickets of a round: all that can be, in one step on storage.

        :param replaces: the decision that the person saw, and wants to change.
        :param at: Unix seconds.
        :raises InputError: for a ticket or a choice that there is not.
        :raises StoreError: when it cannot be stored; whether it was shows at the next look.
        """
        tickets = tuple(dict.fromkeys(tickets))
        with self.lock:
            self.refresh()
            round = self.round(number)
            rounds.refuse_unknown(round, tickets)
            round.terms.refuse(model=wish.model, prompt=wish.prompt)
            while True:
                answer, free = _sorted_out(round, tickets, wish, by, replaces)
                if not free:
                    return answer
                decision = Decision(
                    id=str(make_id()), wish=wish, by=by, at=at, tickets=free, replaces=replaces
                )
                if _append(round, {"type": "decision", **decision.to_json()}):
                    answer.decided = free
                    return answer

    def close(self, by: ClosedBy, *, at: float, make_id: MakeId = uuid.uuid4) -> None:
        """
        End the latest round; what nobody has decided becomes its default. Ending it twice is fine.

        :param by: why it ends.
        :param at: Unix seconds.
        """
        with self.lock:
            self.refresh()
            round = self.round()
            while round.state == "open":
                default = round.terms.default or "leave"
                entry = {"type": "closed", "id": str(make_id()), "by": by, "at": at, "default": default}
                _append(round, entry)

    def claim_alert(self, number: int) -> bool:
        """Whether nobody has been told of a round yet; from now on somebody has."""
        try:
            put_json(self.storage, alerted_file(number), {"round": number})
        except FileExistsError:
            return False
        return True

    def finish(self, manifests: Sequence[dict[str, Any]], *, occasion: str, at: float) -> None:
        """
        Say that the review is over, and what came of it.

        :param occasion: what all tries of the task have in common until somebody clears it.
        :param at: Unix seconds.
        """
        data = {"manifests": list(manifests), "occasion": occasion, "at": at}
        put_json(self.storage, DONE_FILE, data, replace=True)
        self.refresh()

    def reopen(self) -> None:
        """Take back that it is over."""
        self.storage.remove(DONE_FILE)
        self.refresh()


def _append(round: Round, entry: Entry) -> bool:
    """Add an entry, or read what somebody else has added in its place."""
    if round.log.append(entry):
        round.enter(entry)
        return True
    round.refresh()
    return False


def _sorted_out(
    round: Round, tickets: Sequence[str], wish: Wish, by: Person, replaces: str | None
) -> tuple[Decided, tuple[str, ...]]:
    """Return what stands against a wish, and the tickets that are free for it."""
    answer, free, already = Decided(), [], []
    for id in tickets:
        standing = round.decisions.get(id)
        if standing is not None and (standing.wish, standing.by) == (wish, by):
            already.append(id)
        elif round.state != "open" or (standing is not None and standing.id != replaces):
            answer.conflicts.append((id, standing))
        elif problem := _problem(round.tickets[id], wish):
            answer.refused.append((id, problem))
        else:
            free.append(id)
    answer.already = tuple(already)
    return answer, tuple(free)


def _problem(ticket: Ticket, wish: Wish) -> str | None:
    if wish.kind == "accept" and not ticket.acceptable:
        return "What the model said does not satisfy the schema as it stands; edit it, or send it again."
    return None
