"""The routes of the review API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response, status
from fastapi.responses import StreamingResponse

from airflow_provider_llmbatch.engine.journal import Person
from airflow_provider_llmbatch.engine.review.decision import Wish
from airflow_provider_llmbatch.engine.review.find import find
from airflow_provider_llmbatch.engine.review.queue import Decided, Queue
from airflow_provider_llmbatch.engine.review.rounds import Round
from airflow_provider_llmbatch.engine.reviewing import checked
from airflow_provider_llmbatch.engine.sink.csv import csv_of
from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.plugins.api import answers
from airflow_provider_llmbatch.plugins.api.audit import audit
from airflow_provider_llmbatch.plugins.api.gates import (
    FROM_HERE,
    MAY_DECIDE,
    MAY_READ,
    MAY_READ_CONNECTION,
    Readable,
    is_asked,
    may_decide,
    readable_dags,
)
from airflow_provider_llmbatch.plugins.api.queues import Queues, Who, schema_of
from airflow_provider_llmbatch.plugins.api.shapes import (
    LISTED_MOST,
    PAGE,
    PAGE_MOST,
    CheckBody,
    Conflict,
    ConnectionShape,
    DecidedShape,
    DecisionPage,
    DecisionsBody,
    QueuePage,
    QueueShape,
    Refusal,
    TicketDetail,
    TicketPage,
    TicketQuery,
    Valid,
    WakeBody,
    Woken,
)
from airflow_provider_llmbatch.plugins.api.waking import wake

#: Queues of a page.
QUEUES_MOST = 200

router = APIRouter(prefix="/api/v1")
queues = Queues()

_QUEUE = "/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/review"


def _who(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> Who:
    return Who(dag_id, run_id, task_id, map_index)


WhoDep = Annotated[Who, Depends(_who)]
RoundNumber = Annotated[int | None, Query(ge=1)]
Limit = Annotated[int, Query(ge=1, le=PAGE_MOST)]
Offset = Annotated[int, Query(ge=0)]


def _queue(who: WhoDep) -> Queue:
    queue = queues.of(who)
    if queue is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "This task has opened no queue.")
    return queue


QueueDep = Annotated[Queue, Depends(_queue)]


def _round(queue: Queue, number: int | None) -> Round:
    try:
        return queue.round(number)
    except InputError:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"There is no round {number}.") from None


@router.get("/queues")
def list_queues(
    readable: Annotated[Readable, Depends(readable_dags)],
    state: Literal["open", "all"] = "open",
    dag_id: str | None = None,
    limit: Annotated[int, Query(ge=1, le=QUEUES_MOST)] = PAGE,
    offset: Offset = 0,
) -> QueuePage:
    """List the queues of the DAGs that the caller may read."""
    posts = queues.inbox().posts(*(("open",) if state == "open" else ("open", "done")))
    mine = [post for post in posts if dag_id in (None, post.dag_id) and post.dag_id in readable]
    found = []
    for post in mine[offset : offset + limit]:
        who = Who(post.dag_id, post.run_id, post.task_id, post.map_index)
        if (queue := queues.of(who)) is not None:
            with queue.lock:
                found.append(answers.entry(who, queue))
    return QueuePage(total=len(mine), queues=found)


@router.get(_QUEUE, dependencies=[MAY_READ])
def show_queue(
    who: WhoDep, queue: QueueDep, request: Request, user: GetUserDep, round: RoundNumber = None
) -> QueueShape:
    """Show a queue, as of a round."""
    with queue.lock:
        chosen = _round(queue, round)
        return answers.whole(
            who, queue, chosen, may_decide=may_decide(who.dag_id, queue.round(), request, user)
        )


@router.get(_QUEUE + "/tickets", dependencies=[MAY_READ])
def list_tickets(queue: QueueDep, query: Annotated[TicketQuery, Query()]) -> TicketPage:
    """List tickets."""
    with queue.lock:
        round = _round(queue, query.round)
        found = find(round, answers.filter_of(query), query.order_by)
        page = found[query.offset : query.offset + query.limit]
        shapes = [answers.ticket_shape(round, ticket) for ticket in page]
    return TicketPage(total=len(found), round=round.number, tickets=shapes)


@router.get(_QUEUE + "/tickets.csv", dependencies=[MAY_READ])
def export_tickets(queue: QueueDep, query: Annotated[TicketQuery, Query()]) -> StreamingResponse:
    """Export all tickets that match, and what was decided."""
    with queue.lock:
        round = _round(queue, query.round)
        found = find(round, answers.filter_of(query), query.order_by)
        shapes = [answers.ticket_shape(round, ticket).model_dump() for ticket in found]
    content = csv_of([*_TICKET_COLUMNS, *(f"decision.{name}" for name in _DECISION_COLUMNS)], _cells(shapes))
    headers = {
        "Content-Disposition": f'attachment; filename="tickets-{round.number}.csv"',
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(content, media_type="text/csv; charset=utf-8", headers=headers)


_TICKET_COLUMNS = (
    *("id", "index", "item_id", "reason", "outcome", "error", "status", "code", "model", "prompt"),
    *("finish_reason", "attempts", "tokens", "group"),
)
_DECISION_COLUMNS = ("kind", "by", "at", "why", "model", "prompt", "max_tokens")


def _cells(shapes: list[dict[str, Any]]) -> Iterator[list[Any]]:
    for shape in shapes:
        decision = shape["decision"] or {}
        if decision:
            decision["by"] = decision["by"]["name"]
        yield [
            *(shape[name] for name in _TICKET_COLUMNS),
            *(decision.get(name) for name in _DECISION_COLUMNS),
        ]


@router.get(_QUEUE + "/tickets/{ticket}", dependencies=[MAY_READ])
def show_ticket(queue: QueueDep, ticket: str, round: RoundNumber = None) -> TicketDetail:
    """Show a ticket with its texts."""
    with queue.lock:
        chosen = _round(queue, round)
        if ticket not in chosen.tickets:
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"There is no ticket {ticket} in this round.")
        return answers.detail(chosen, chosen.tickets[ticket])


@router.get(_QUEUE + "/decisions", dependencies=[MAY_READ])
def list_decisions(
    queue: QueueDep, round: RoundNumber = None, limit: Limit = PAGE, offset: Offset = 0
) -> DecisionPage:
    """List what was decided, newest first."""
    with queue.lock:
        history = _round(queue, round).history[::-1]
    page = [answers.logged(decision) for decision in history[offset : offset + limit]]
    return DecisionPage(total=len(history), decisions=page)


@router.post(_QUEUE + "/decisions", dependencies=[MAY_DECIDE, FROM_HERE])
def decide(
    who: WhoDep,
    queue: QueueDep,
    body: DecisionsBody,
    request: Request,
    response: Response,
    user: GetUserDep,
    session: SessionDep,
) -> DecidedShape:
    """Decide tickets, and wake the task when enough are decided."""
    round = _round(queue, body.round)
    _refuse_the_unasked(round, user)
    by = Person(id=str(user.get_id()), name=str(user.get_name()))
    wish = Wish(**body.model_dump(include={"kind", "why", "model", "prompt", "max_tokens", "output"}))
    tickets = _tickets(queue, round, body)
    problem = _problem(round, body, tickets)
    if problem is not None:
        decided = Decided(refused=[(ticket, problem) for ticket in tickets])
    else:
        at = time.time()
        decided = queue.decide(round.number, tickets, wish, by, at=at, replaces=body.replaces)
    if decided.decided:
        audit("llmbatch_decide", request, session, user, kind=wish.kind, decided=len(decided.decided))
    is_waiting = round.state == "open" and round.is_complete and round is queue.latest
    resumed = is_waiting and wake(who, user, session)[0]
    response.status_code = _status(decided)
    return _decided(queue, decided, resumed)


def _refuse_the_unasked(round: Round, user: Any) -> None:
    if not is_asked(round, user):
        names = ", ".join(name for _, name in round.terms.assigned)
        raise HTTPException(status.HTTP_403_FORBIDDEN, f"This review is assigned to {names}.")


def _tickets(queue: Queue, round: Round, body: DecisionsBody) -> list[str]:
    if (body.tickets is None) == (body.filter is None):
        raise InputError("Give either tickets or a filter.")
    if body.filter is None:
        return body.tickets or []
    with queue.lock:
        found = find(round, answers.filter_of(body.filter))
        return [ticket.id for ticket in found if ticket.id not in round.decisions]


def _problem(round: Round, body: DecisionsBody, tickets: list[str]) -> str | None:
    """Return why an edit cannot be taken."""
    if body.kind != "edit":
        return None
    if len(tickets) != 1 or "output" not in body.model_fields_set:
        raise InputError("An edit is about one ticket, and has an output.")
    problem = checked(body.output, schema_of(round.terms.schema)).problem
    return None if problem is None else problem.message


def _status(decided: Decided) -> int:
    if decided.decided or decided.already or not (decided.conflicts or decided.refused):
        return status.HTTP_200_OK
    return status.HTTP_409_CONFLICT if decided.conflicts else status.HTTP_422_UNPROCESSABLE_CONTENT


def _decided(queue: Queue, decided: Decided, resumed: bool) -> DecidedShape:
    conflicts = [
        Conflict(ticket=ticket, decision=answers.decision_shape(standing) if standing else None)
        for ticket, standing in decided.conflicts[:LISTED_MOST]
    ]
    refused = [Refusal(ticket=ticket, why=why) for ticket, why in decided.refused[:LISTED_MOST]]
    return DecidedShape(
        decided=len(decided.decided),
        already=len(decided.already),
        conflicts=conflicts,
        conflicts_total=len(decided.conflicts),
        refused=refused,
        refused_total=len(decided.refused),
        queue=answers.standing(queue),
        resumed=resumed,
    )


@router.post(_QUEUE + "/check", dependencies=[MAY_DECIDE, FROM_HERE])
def check_output(queue: QueueDep, body: CheckBody) -> Valid:
    """Say whether an output could be taken, and decide nothing."""
    problem = checked(body.output, schema_of(queue.round().terms.schema)).problem
    return Valid(valid=problem is None, why=None if problem is None else problem.message)


@router.post(_QUEUE + "/wake", dependencies=[MAY_DECIDE, FROM_HERE])
def wake_task(
    who: WhoDep, queue: QueueDep, body: WakeBody, request: Request, user: GetUserDep, session: SessionDep
) -> Woken:
    """Wake the task if its queue is complete."""
    round = queue.round()
    if round.state != "open" or not round.is_complete:
        why = "Not enough is decided." if round.state == "open" else "The round is closed."
        return Woken(resumed=False, why=why)
    resumed, why = wake(who, user, session)
    if resumed:
        audit("llmbatch_wake", request, session, user)
    return Woken(resumed=resumed, why=why)


@router.get("/connections/{connection_id}", dependencies=[MAY_READ_CONNECTION])
def show_connection(connection_id: str) -> ConnectionShape:
    """Show what a connection leads to."""
    from airflow.sdk.exceptions import AirflowNotFoundException

    from airflow_provider_llmbatch.hooks.llm import LLMBatchHook

    try:
        return answers.connection(LLMBatchHook(connection_id).settings())
    except AirflowNotFoundException as error:
        raise HTTPException(status.HTTP_404_NOT_FOUND, str(error)) from None
