"""Queues, tickets and decisions in the forms of the API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow_provider_llmbatch.engine.connection.settings import ConnectionSettings
from airflow_provider_llmbatch.engine.items import Outcome, Result
from airflow_provider_llmbatch.engine.recheck import reread
from airflow_provider_llmbatch.engine.results import rows
from airflow_provider_llmbatch.engine.review.decision import Decision
from airflow_provider_llmbatch.engine.review.find import Filter, neighbours
from airflow_provider_llmbatch.engine.review.queue import Queue
from airflow_provider_llmbatch.engine.review.rounds import Round
from airflow_provider_llmbatch.engine.review.ticket import Ticket
from airflow_provider_llmbatch.plugins.api.queues import Who, schema_of
from airflow_provider_llmbatch.plugins.api.shapes import (
    LISTED_MOST,
    Choices,
    ConnectionShape,
    CredentialShape,
    DecisionShape,
    DecisionWithOutput,
    LimitShape,
    LoggedDecision,
    QueueEntry,
    QueueShape,
    RoundShape,
    Standing,
    TextsShape,
    TicketDetail,
    TicketFilter,
    TicketShape,
)

_TICKET_FIELDS = tuple(TicketShape.model_fields.keys() - {"id", "round", "decision", "outcome"})


def moment(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else moment(seconds)


def standing(queue: Queue) -> Standing:
    """Return how far a queue is."""
    return Standing(**_standing(queue, queue.round()))


def _standing(queue: Queue, round: Round) -> dict[str, Any]:
    return {
        "state": queue.state,
        "round": round.number,
        "tickets": round.size,
        "decided": len(round.decisions),
        "needed": round.needed,
    }


def _entry(who: Who, queue: Queue, round: Round) -> dict[str, Any]:
    return {
        **who._asdict(),
        **_standing(queue, round),
        "opened_at": moment(round.opened_at),
        "deadline": _moment(round.terms.deadline),
    }


def entry(who: Who, queue: Queue) -> QueueEntry:
    """Return a queue for the list."""
    return QueueEntry(**_entry(who, queue, queue.round()))


def whole(who: Who, queue: Queue, round: Round, *, may_decide: bool) -> QueueShape:
    """Return a queue with all that there is to know of it, as of one of its rounds."""
    terms = round.terms
    return QueueShape(
        **_entry(who, queue, round),
        default=terms.default,
        rounds=[_round(each) for each in queue.rounds],
        max_rounds=terms.max_rounds,
        counts=round.counts(),
        choices=Choices(models=list(terms.models), prompts=list(terms.prompts)),
        output_schema=None if terms.schema is None else dict(terms.schema),
        may_decide=may_decide,
    )


def _round(round: Round) -> RoundShape:
    return RoundShape(
        round=round.number,
        state=round.state,
        opened_at=moment(round.opened_at),
        closed_at=_moment(round.closed_at),
        closed_by=round.closed_by,
        tickets=round.size,
        decided=len(round.decisions),
    )


def filter_of(asked: TicketFilter) -> Filter:
    """Return the filter that was asked for."""
    return Filter(
        outcome=frozenset(asked.outcome),
        error=frozenset(asked.error),
        model=frozenset(asked.model),
        reason=frozenset(asked.reason),
        decision=frozenset(asked.decision),
        decided_by=asked.decided_by,
        q=asked.q,
    )


def ticket_shape(round: Round, ticket: Ticket) -> TicketShape:
    """Return a ticket without its texts."""
    return TicketShape(**_ticket(round, ticket))


def _ticket(round: Round, ticket: Ticket) -> dict[str, Any]:
    decision = round.decisions.get(ticket.id)
    return {
        **{name: getattr(ticket, name) for name in _TICKET_FIELDS},
        "id": ticket.id,
        "round": round.number,
        "outcome": ticket.outcome.value,
        "decision": None if decision is None else decision_shape(decision),
    }


def detail(round: Round, ticket: Ticket) -> TicketDetail:
    """
    Return a ticket with its texts.

    :raises StoreError: when they cannot be read.
    """
    texts = round.texts(ticket)
    row = texts["row"]
    result = (
        rows.from_row(row)
        if row is not None
        else Result(index=ticket.index, id=ticket.item_id, outcome=Outcome.UNSENT)
    )
    problem = None if ticket.acceptable else reread(result, schema_of(round.terms.schema)).problem
    before, after = neighbours(round, ticket)
    error = result.error
    return TicketDetail(
        **_ticket(round, ticket),
        texts=TextsShape(
            item=texts["item"],
            messages=texts["messages"],
            output=result.output,
            raw_output=result.raw_output,
            error=error.message if error else None,
            refusal=error.message if error and result.outcome is Outcome.REFUSED else None,
        ),
        acceptable=ticket.acceptable,
        why_not=None if ticket.acceptable else problem.message if problem else _REFUSED_BY_TYPE,
        previous=before,
        next=after,
        history=[
            DecisionWithOutput(**decision_shape(each).model_dump(), output=each.wish.output)
            for each in round.history
            if ticket.id in each.tickets
        ],
    )


_REFUSED_BY_TYPE = "The output type demands more than its JSON schema says."


def decision_shape(decision: Decision) -> DecisionShape:
    """Return a decision without what was written."""
    return DecisionShape(**_decision(decision))


def _decision(decision: Decision) -> dict[str, Any]:
    wish = decision.wish
    return {
        "id": decision.id,
        "kind": wish.kind,
        "by": {"id": decision.by.id, "name": decision.by.name},
        "at": moment(decision.at),
        "why": wish.why,
        "model": wish.model,
        "prompt": wish.prompt,
        "max_tokens": wish.max_tokens,
        "edited": wish.kind == "edit",
    }


def connection(settings: ConnectionSettings) -> ConnectionShape:
    """Return what a connection leads to, without a key."""
    return ConnectionShape(
        conn_id=settings.conn_id,
        base_url=settings.base_url,
        model=settings.model,
        credentials=[CredentialShape(id=each.id, account=each.account) for each in settings.credentials],
        limits=[
            LimitShape(
                account=rule.account,
                models=list(rule.models),
                requests_per_minute=rule.requests_per_minute,
                tokens_per_minute=rule.tokens_per_minute,
                requests_per_day=rule.requests_per_day,
                tokens_per_day=rule.tokens_per_day,
                max_in_flight=rule.max_in_flight,
            )
            for rule in settings.limits
        ],
    )


def logged(decision: Decision) -> LoggedDecision:
    """Return a decision as the log shows it."""
    tickets = decision.tickets
    return LoggedDecision(
        **_decision(decision), tickets=list(tickets[:LISTED_MOST]), tickets_total=len(tickets)
    )
