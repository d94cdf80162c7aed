"""
Carry out what a round of review has decided.

What a person wrote, took or gave up becomes rows; the rest is sent again.

Every row goes to the round's own level among the rows of its chunk. So a kill at any point and another try
lead to the same rows: what is there is not written, and not sent, again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from airflow_provider_llmbatch.engine import manifests
from airflow_provider_llmbatch.engine.again import Again
from airflow_provider_llmbatch.engine.items import BadItem, Chunk, Item, Outcome, Result
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.prompt import Prompt
from airflow_provider_llmbatch.engine.recheck import reread
from airflow_provider_llmbatch.engine.results import read, resume, rows
from airflow_provider_llmbatch.engine.results.answers import read_answers
from airflow_provider_llmbatch.engine.results.store import open_store
from airflow_provider_llmbatch.engine.review.apply import decided
from airflow_provider_llmbatch.engine.review.decision import Decision, Wish
from airflow_provider_llmbatch.engine.review.rounds import Round
from airflow_provider_llmbatch.engine.review.ticket import Ticket
from airflow_provider_llmbatch.engine.reviewing import Places, Portion, checked
from airflow_provider_llmbatch.engine.source import Row, Source
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.engine.tokens.reserve import CAPS
from airflow_provider_llmbatch.errors import StoppedError

#: Sends items of a chunk again, and returns the account.
Send = Callable[[Job, Chunk, Again], Awaitable[Manifest]]

#: A portion's tickets and what was decided of them, by index.
Decisions = dict[int, tuple[Ticket, Decision]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What carries decisions out."""

    send: Send
    #: finds a prompt by ``name@version``
    prompt: Callable[[str], Prompt]
    #: tells a person, in a sentence, what they should know
    note: Callable[[str], None]
    #: Unix seconds
    wall: Callable[[], float]


async def carry_out(round: Round, portions: Sequence[Portion], hands: Hands) -> list[Manifest]:
    """
    Carry out a round that is closed; doing so again changes nothing.

    :return: the manifests of the portions, as the rows are now.
    :raises StoppedError: when retries stopped before their end; the next try goes on there.
    :raises StoreError: when rows cannot be read or written.
    """
    done = []
    for portion in portions:
        mine = _without_overtaken(round, portion, _decisions(round, portion))
        _write(round, portion, mine, hands)
        for job, indexes in _retries(portion, mine, hands):
            again = Again(round=round.level, indexes=indexes, answers=portion.answers)
            manifest = await hands.send(job, portion.chunk, again)
            if manifest.state == "stopped":
                raise StoppedError(
                    manifest.reason, retryable=manifest.retryable, retry_after_s=manifest.retry_after_s
                )
        done.append(account(portion, hands.wall()))
    return done


def decided_places(round: Round, portions: Sequence[Portion]) -> Places:
    """Return the items of which something was decided: those that a further round may look at again."""
    return {portion.place: frozenset(_decisions(round, portion)) for portion in portions}


def _decisions(round: Round, portion: Portion) -> Decisions:
    folder = round.folders.index(portion.folder.uri) if portion.folder.uri in round.folders else -1
    return {
        ticket.index: (ticket, round.decisions[id])
        for id, ticket in round.tickets.items()
        if id in round.decisions and ticket.folder == folder and ticket.chunk == portion.chunk.number
    }


def _without_overtaken(round: Round, portion: Portion, mine: Decisions) -> Decisions:
    """Leave out items that became usable since the person saw them, as when their dispatch was cleared."""
    return resume.steadily(portion.folder, lambda: _looked_at(round, portion, mine))


def _looked_at(round: Round, portion: Portion, mine: Decisions) -> Decisions:
    where = read.where_of(portion.folder, portion.chunk.number)
    kept: Decisions = {}
    with where.shelf(portion.folder) as shelf:
        for index, each in mine.items():
            outcome = where.outcome(index)
            if outcome is not None and outcome.is_good and where.round(index) < round.level:
                now = rows.from_row(json.loads(where.line(shelf, index)))
                if now != _seen(round, each[0]):
                    continue
            kept[index] = each
    return kept


def _write(round: Round, portion: Portion, mine: Decisions, hands: Hands) -> None:
    """Store the rows of what was edited, accepted and skipped."""
    own = {index: each for index, each in mine.items() if each[1].wish.kind != "retry"}
    if not own:
        return
    fence = resume.highest_fence(portion.folder, portion.chunk.number) + 1
    store = open_store(portion.folder, portion.answers, fence, "resume", round=round.level)
    with closing(store):
        for index, (ticket, decision) in own.items():
            if store.where.round(index) >= round.level:
                continue
            row = _row(round, ticket, decision, portion)
            if isinstance(row, str):
                hands.note(f"Item {ticket.item_id!r}: the decision to {decision.wish.kind} was left: {row}")
                continue
            store.add(row)
    store.compact()


def _row(round: Round, ticket: Ticket, decision: Decision, portion: Portion) -> Result | str:
    """Return the row that a decision makes, or why it makes none."""
    seen = _seen(round, ticket)
    wish, output = decision.wish, None
    if wish.kind in ("edit", "accept"):
        schema = portion.job.schema
        found = checked(wish.output, schema) if wish.kind == "edit" else reread(seen, schema)
        if found.problem is not None:
            return found.problem.message
        output = found.output
    return decided(seen, wish, output, portion.job.run, decision.at)


def _seen(round: Round, ticket: Ticket) -> Result:
    """Return the row as the person saw it."""
    row = round.texts(ticket, keep=True)["row"]
    if row is None:
        return Result(index=ticket.index, id=ticket.item_id, outcome=Outcome.UNSENT)
    return rows.from_row(row)


def _retries(portion: Portion, mine: Decisions, hands: Hands) -> Iterator[tuple[Job, frozenset[int]]]:
    """Yield a job for each way in which items are sent again."""
    ways: dict[tuple[str | None, str | None, int | None], set[int]] = {}
    for index, (_, decision) in mine.items():
        wish = decision.wish
        if wish.kind == "retry":
            ways.setdefault((wish.model, wish.prompt, wish.max_tokens), set()).add(index)
    for (model, prompt, max_tokens), indexes in ways.items():
        wish = Wish(kind="retry", model=model, prompt=prompt, max_tokens=max_tokens)
        yield _job(portion.job, wish, hands), frozenset(indexes)


def _job(job: Job, wish: Wish, hands: Hands) -> Job:
    """Return a job that asks as was decided."""
    if wish.model is not None:
        job = replace(job, model=wish.model)
    if wish.prompt is not None:
        job = replace(job, prompt=hands.prompt(wish.prompt), trial=None)
    if wish.max_tokens is not None:
        named = {**job.prompt.params, **job.params}
        cap = next((name for name in CAPS if name in named), CAPS[-1])
        job = replace(job, params={**job.params, cap: wish.max_tokens}, source=_Uncapped(job.source))
    return job


class _Uncapped:
    """A source whose items have no cap of their own, so that a decided one holds."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.uri = source.uri

    def rows(self, *, start: int = 0, offset: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Yield the same rows."""
        for row in self._source.rows(start=start, offset=offset, stop=stop):
            read_item = functools.partial(_uncapped, row)
            yield Row(
                index=row.index, offset=row.offset, raw=row.raw, read=read_item, may_chain=row.may_chain
            )


def _uncapped(row: Row) -> Item | BadItem:
    item = row.item
    if isinstance(item, BadItem) or not set(item.params).intersection(CAPS):
        return item
    return replace(item, params={name: value for name, value in item.params.items() if name not in CAPS})


def account(portion: Portion, at: float) -> Manifest:
    """Return the manifest of a portion as its rows are now, and keep it beside them."""
    folder, answers = portion.folder, portion.answers
    found = read_answers(folder, answers.chunk) or {}
    survey = resume.steadily(
        folder,
        lambda: resume.survey(folder, answers.chunk, answers.start, answers.stop, found.get("since", 0)),
    )
    counts, totals = survey.where.counts(), survey.totals
    is_whole = not counts.get(Outcome.UNSENT)
    manifest = replace(
        portion.manifest,
        counts=counts,
        usage=totals.usage,
        cost=totals.cost,
        possible_double_paid=totals.maybe_paid + len(totals.open),
        state="complete" if is_whole else portion.manifest.state,
        reason="" if is_whole else portion.manifest.reason,
        ended_at=at,
    )
    manifests.store(folder, manifest)
    return manifest
