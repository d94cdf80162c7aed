"""Join results and review: which rows wait for a person, and what that person gets to read."""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_llmbatch.engine.identity import digest_rows
from airflow_provider_llmbatch.engine.items import BadItem, Chunk, Item, Json, Outcome, Request, Result
from airflow_provider_llmbatch.engine.job import Job, tools
from airflow_provider_llmbatch.engine.recheck import reread
from airflow_provider_llmbatch.engine.results import read, resume, rows
from airflow_provider_llmbatch.engine.results.answers import Answers, check_answers, read_answers
from airflow_provider_llmbatch.engine.results.folder import Folder, open_folder
from airflow_provider_llmbatch.engine.results.where import MOST_ROUNDS, Where
from airflow_provider_llmbatch.engine.review.choose import Rules
from airflow_provider_llmbatch.engine.review.opening import Texts, publish
from airflow_provider_llmbatch.engine.review.queue import Queue
from airflow_provider_llmbatch.engine.review.rounds import Round
from airflow_provider_llmbatch.engine.review.terms import Terms
from airflow_provider_llmbatch.engine.review.ticket import Ticket, ticket_of
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.engine.validate.check import Checked, check
from airflow_provider_llmbatch.engine.validate.schema import OutputSchema
from airflow_provider_llmbatch.errors import InputError

#: Indexes of a chunk, by the URI of its folder and its number.
Places = Mapping[tuple[str, int], Collection[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """A chunk of results under review."""

    #: as it was dispatched
    job: Job
    manifest: Manifest
    chunk: Chunk
    folder: Folder
    answers: Answers

    @property
    def place(self) -> tuple[str, int]:
        """Where it is."""
        return self.folder.uri, self.chunk.number


def portion_of(job: Job, manifest: Manifest) -> Portion:
    """
    Return the results of a manifest, once it is sure that they answer what ``job`` asks.

    :param job: source, prompt, model, params and schema as they were dispatched; its ``result_path`` is that
        of the manifest.
    :raises InputError: when they answer something else, or are not there.
    """
    folder = open_folder(job.result_path, filesystem=job.filesystem)
    found = read_answers(folder, manifest.chunk)
    if found is None:
        raise InputError(f"There are no results of chunk {manifest.chunk} in {folder.uri}.")
    start, stop = found["start"], found["stop"]
    sha = digest_rows(row.raw for row in job.source.rows(start=start, stop=stop))
    answers = Answers(
        chunk=manifest.chunk,
        start=start,
        stop=stop,
        fingerprint=job.fingerprint(sha),
        source=job.source.uri,
        prompt=job.prompt.ref,
        model=job.model,
        schema_digest=job.schema.digest,
        host=job.host,
        occasion=found.get("occasion"),
    )
    check_answers(folder, found, answers, "resume")
    chunk = Chunk(number=manifest.chunk, start=start, stop=stop, offset=0, sha=sha)
    return Portion(job=job, manifest=manifest, chunk=chunk, folder=folder, answers=answers)


def open_round(
    queue: Queue,
    portions: Sequence[Portion],
    rules: Rules,
    terms: Terms,
    *,
    occasion: str,
    at: float,
    note: Callable[[str], None],
    only: Places | None = None,
    make_id: Callable[[], object] = uuid.uuid4,
) -> Round | None:
    """
    Open the next round of a queue; when another try was faster, return the one that it has opened.

    :param only: items that may get a ticket, and when none of them does there is no further round; all when
        None.
    :param occasion: what all tries of the task have in common until somebody clears it.
    :param at: Unix seconds.
    :raises InputError: when there are too many tickets, or rounds.
    """
    number = len(queue.rounds) + 1
    attempt = str(make_id())[:8]
    texts = Texts(queue.storage, number, attempt)
    folders = list(dict.fromkeys(portion.folder.uri for portion in portions))
    tickets: list[Ticket] = []
    level = 1
    for portion in sorted(portions, key=lambda each: (folders.index(each.folder.uri), each.chunk.number)):
        reading = _Reading(portion, rules, texts, folders.index(portion.folder.uri), note)
        places = None if only is None else only.get(portion.place, ())
        found, highest = resume.steadily(portion.folder, functools.partial(reading.tickets, places))
        tickets += found
        level = max(level, highest + 1)
    if only is not None and not tickets:
        return None
    if level > MOST_ROUNDS:
        raise InputError(f"These results were reviewed {MOST_ROUNDS} times; dispatch them anew.")
    texts.flush()
    publish(
        queue.storage,
        number,
        attempt,
        tickets,
        folders=folders,
        level=level,
        terms=terms,
        occasion=occasion,
        at=at,
    )
    queue.refresh()
    return queue.round(number)


def checked(output: Json, schema: OutputSchema) -> Checked:
    """Return what a person has written, as a schema reads it."""
    if schema.is_text:
        return check(schema, output if isinstance(output, str) else None)
    return check(schema, json.dumps(output, ensure_ascii=False))


class _Reading:
    """Reads the rows of a portion and the items behind them."""

    def __init__(
        self, portion: Portion, rules: Rules, texts: Texts, folder: int, note: Callable[[str], None]
    ) -> None:
        self._portion = portion
        self._rules = rules
        self._texts = texts
        self._folder = folder
        self._compose = tools(portion.job, note).composer.compose

    def tickets(self, only: Collection[int] | None) -> tuple[list[Ticket], int]:
        """
        Return the tickets, and the highest review round of the rows.

        :raises FileNotFoundError: when the rows were put together meanwhile.
        """
        portion = self._portion
        where = read.where_of(portion.folder, portion.chunk.number)
        return list(self._found(where, only)), where.highest_round()

    def _found(self, where: Where, only: Collection[int] | None) -> Iterator[Ticket]:
        chunk = self._portion.chunk
        with where.shelf(self._portion.folder) as shelf:
            for source_row in self._portion.job.source.rows(start=chunk.start, stop=chunk.stop):
                index = source_row.index
                if (only is not None and index not in only) or not self._may_be_wanted(where.outcome(index)):
                    continue
                row = None if where.outcome(index) is None else json.loads(where.line(shelf, index))
                if (ticket := self._ticket(source_row.item, row)) is not None:
                    yield ticket

    def _may_be_wanted(self, outcome: Outcome | None) -> bool:
        outcome = outcome or Outcome.UNSENT
        return outcome in self._rules.outcomes or (outcome.is_good and self._rules.needs_usable_rows)

    def _ticket(self, item: Item | BadItem, row: Mapping[str, Any] | None) -> Ticket | None:
        result = (
            rows.from_row(row)
            if row is not None
            else Result(index=item.index, id=item.id, outcome=Outcome.UNSENT)
        )
        reason = self._rules.reason(result, self._portion.answers.fingerprint)
        if reason is None:
            return None
        request = self._compose(item) if isinstance(item, Item) else None
        messages = list(request.messages) if isinstance(request, Request) else None
        return ticket_of(
            result,
            folder=self._folder,
            chunk=self._portion.chunk.number,
            reason=reason,
            group=item.group if isinstance(item, Item) else None,
            acceptable=reread(result, self._portion.job.schema).problem is None,
            place=self._texts.add(_shown(item), messages, row),
        )


def _shown(item: Item | BadItem) -> dict[str, Any]:
    """Return an item as it stands in a source, without what it leaves out."""
    values = {name: value for name, value in asdict(item).items() if value not in (None, {}, ())}
    values.pop("index", None)
    return values
