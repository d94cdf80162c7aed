"""Find tickets by their fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from airflow_provider_llmbatch.engine.review.rounds import Round
from airflow_provider_llmbatch.engine.review.ticket import Ticket

Order = Literal["index", "-index", "item_id", "-item_id", "attempts", "-attempts", "tokens", "-tokens"]
ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What tickets have to be: one of the values of each field that is given."""

    outcome: frozenset[str] = frozenset()
    error: frozenset[str] = frozenset()
    model: frozenset[str] = frozenset()
    reason: frozenset[str] = frozenset()
    #: kinds of decisions, and ``open``
    decision: frozenset[str] = frozenset()
    #: id of the person whose decision stands
    decided_by: str | None = None
    #: part of the item's id, in any case
    q: str = ""


def find(round: Round, wanted: Filter, order: Order = "index") -> list[Ticket]:
    """Return the tickets that a filter leaves, in order."""
    tests = list(_tests(round, wanted))
    found = [ticket for ticket in round.tickets.values() if all(test(ticket) for test in tests)]
    field = order.removeprefix("-")
    if order != "index":
        # Tickets are in the order of their places; sorting keeps it among equals.
        found.sort(key=_key(field), reverse=order.startswith("-"))
    return found


def neighbours(round: Round, ticket: Ticket) -> tuple[str | None, str | None]:
    """Return the nearest undecided tickets before and after one."""
    before = after = None
    passed = False
    for id in round.tickets:
        if id == ticket.id:
            passed = True
        elif id not in round.decisions:
            if passed:
                after = id
                break
            before = id
    return before, after


def _tests(round: Round, wanted: Filter) -> Sequence[Callable[[Ticket], bool]]:
    tests: list[Callable[[Ticket], bool]] = []
    if wanted.outcome:
        tests.append(lambda ticket: ticket.outcome.value in wanted.outcome)
    if wanted.error:
        tests.append(lambda ticket: ticket.error in wanted.error)
    if wanted.model:
        tests.append(lambda ticket: ticket.model in wanted.model)
    if wanted.reason:
        tests.append(lambda ticket: ticket.reason in wanted.reason)
    if wanted.decision:
        tests.append(lambda ticket: round.kind_of(ticket) in wanted.decision)
    if wanted.decided_by is not None:
        tests.append(lambda ticket: _decided_by(round, ticket) == wanted.decided_by)
    if part := wanted.q.casefold():
        tests.append(lambda ticket: part in ticket.item_id.casefold())
    return tests


def _decided_by(round: Round, ticket: Ticket) -> str | None:
    decision = round.decisions.get(ticket.id)
    return None if decision is None else decision.by.id


def _key(field: str) -> Callable[[Ticket], Any]:
    if field == "index":
        return lambda ticket: (ticket.folder, ticket.index)
    return lambda ticket: getattr(ticket, field)
