"""
The results of one chunk while it is dispatched.

Order of writing: ``sent`` before a call leaves, then the row, then ``settled``. So a kill at any point
leaves either the row or an open ``sent``, and the next try knows which calls may have been charged.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_llmbatch.engine.items import Result
from airflow_provider_llmbatch.engine.results import bills, ledger, names, resume, rows
from airflow_provider_llmbatch.engine.results.answers import (
    Answers,
    OnExisting,
    check_answers,
    content_of,
    put_answers,
    read_answers,
)
from airflow_provider_llmbatch.engine.results.folder import Appender, Folder
from airflow_provider_llmbatch.engine.results.ledger import Settled, Totals
from airflow_provider_llmbatch.engine.results.linefile import whole_lines
from airflow_provider_llmbatch.engine.results.names import COMPACTED, PartName
from airflow_provider_llmbatch.engine.results.shelf import Shelf
from airflow_provider_llmbatch.engine.results.where import Move, Where
from airflow_provider_llmbatch.errors import StaleFenceError, StoreError


@dataclass(slots=True)
class ResultStore:
    """
    Rows and ledger of one chunk; made with :func:`open_store`.

    :param folder: where they go.
    :param answers: what they answer.
    :param fence: number of this try.
    :param since: number of the try that began anew; 0 when none did.
    :param where: which items had a row when the store was opened.
    :param totals: what the chunk's calls have cost, earlier tries included.
    :param round: review round of the rows that are added.
    """

    folder: Folder
    answers: Answers
    fence: int
    since: int
    where: Where
    totals: Totals
    #: open calls of earlier tries
    cut_off: int
    #: ledgers of earlier tries, with their bytes before they were read
    earlier: Mapping[str, int]
    _rows: Appender
    _ledger: Appender
    round: int = 0
    _shelf: Shelf | None = None

    def sent(self, index: int, attempt: int) -> None:
        """Note that a call is about to leave."""
        self._ledger.write(ledger.sent_line(index, attempt))

    def add(self, result: Result) -> None:
        """
        Store the row; when this returns, the item is done.

        A dispatch that sends an item again after a review adds to that round, so that what it pays for
        counts.
        """
        counts_in = max(self.round, self.where.round(result.index))
        if counts_in != result.round:
            result = replace(result, round=counts_in)
        self._rows.write(rows.encode(result))

    def book(self, **call: Any) -> None:
        """Book a call that is over; takes the fields of :class:`.ledger.Settled`."""
        settled = Settled(**call)
        self.totals.add(settled)
        self._ledger.write(ledger.settled_line(settled))

    def row(self, index: int) -> Result:
        """Return the row that counts of an item that had one when the store was opened."""
        return rows.from_row(json.loads(resume.steadily(self.folder, lambda: self._line(index))))

    @property
    def possible_double_paid(self) -> int:
        """Calls that may have been charged without leaving a reply."""
        return self.totals.maybe_paid + self.cut_off

    def close(self) -> None:
        """
        Finish both files.

        :raises StoreError: when not all of them could be stored.
        """
        self._put_shelf_away()
        try:
            self._rows.close()
        finally:
            self._ledger.close()

    def compact(self) -> Where:
        """
        Put the parts together, in index order, and return where the rows lie now.

        Readers see the old parts or the new one, and the same rows in both; a kill at any point leaves
        one of them, or both.

        :raises StaleFenceError: when another try began anew meanwhile; its rows are not mixed with these.
        """
        self._refuse_if_restarted()
        return resume.steadily(self.folder, self._compact)

    def put_bill(self) -> None:
        """
        Keep what the chunk has cost beside its ledgers, once they are closed.

        What older tries have booked since this one was opened makes it void for readers.
        """
        ledgers = resume.files_of(self.folder, self.answers.chunk)[1]
        own = {str(name): size for name, size in ledgers.items() if name.fence == self.fence}
        bills.put(self.folder, self.answers.chunk, self.totals.spending, {**self.earlier, **own})

    def _compact(self) -> Where:
        try:
            found, _ = resume.files_of(self.folder, self.answers.chunk)
            parts = resume.counting(found, self.since)
            self.where.update(self.folder, parts)
            read = {part: self.where.read.get(part, 0) for part in parts}
            whole = [part for part, end in read.items() if end]
            if len(whole) != 1 or whole[0].fence != COMPACTED:
                whole = [self._put_together(parts)]
        except FileNotFoundError:
            # An older try that was still alive has put the parts together.
            self._look_again()
            raise
        late = self.folder.retire({str(part): end for part, end in read.items() if part not in whole})
        if any([self._adopt(name, whole_lines(lines)) for name, lines in late.items()]):
            self._look_again()
        return self.where

    def _put_together(self, parts: resume.Files) -> PartName:
        highest = max((part.n for part in parts if part.fence == COMPACTED), default=0)
        whole = PartName(self.answers.chunk, COMPACTED, max(self.fence, highest + 1))
        move = Move(self.where, self.folder, whole)
        self.folder.put(str(whole), iter(move))
        move.settle()
        return whole

    def _adopt(self, name: str, lines: bytes) -> bool:
        """Keep what an older try wrote while its part was put together with the others."""
        part = names.parse(name)
        while lines and part is not None:
            part = replace(part, n=part.n + 1)
            with contextlib.suppress(FileExistsError):
                self.folder.put(str(part), iter([lines]))
                return True
        return False

    def _line(self, index: int) -> bytes:
        self._shelf = self._shelf or self.where.shelf(self.folder)
        try:
            return self.where.line(self._shelf, index)
        except FileNotFoundError:
            self._look_again()
            raise

    def _look_again(self) -> None:
        self._put_shelf_away()
        answers = self.answers
        self.where = resume.rows_of(self.folder, answers.chunk, answers.start, answers.stop, self.since)

    def _put_shelf_away(self) -> None:
        if self._shelf is not None:
            self._shelf.close()
            self._shelf = None

    def _refuse_if_restarted(self) -> None:
        now = read_answers(self.folder, self.answers.chunk)
        if now is None or now["since"] != self.since:
            raise StaleFenceError(
                f"Another try of chunk {self.answers.chunk} began anew in {self.folder.uri}; this one ends "
                "here. What it had paid for stays in the ledger."
            )


def open_store(
    folder: Folder,
    answers: Answers,
    fence: int,
    on_existing: OnExisting,
    *,
    round: int = 0,
    make_id: Callable[[], object] = uuid.uuid4,
) -> ResultStore:
    """
    Open a chunk's results for writing, after a look at what is there.

    A retry always resumes; ``on_existing`` speaks of results that were there before the task began, or
    was cleared.

    :param fence: number of this try, above any that has left a file.
    :param on_existing: ``resume`` keeps what is done, ``restart`` pays again, ``fail`` refuses.
    :param round: review round of the rows that are added; 0 is a dispatch.
    :param make_id: makes what tells this try from one that was given the same number.
    :raises InputError: when the results there answer another input.
    :raises ConfigurationError: when another host wrote there, or ``on_existing`` refuses.
    :raises StoreError: when what is there cannot be read.
    """
    earlier = read_answers(folder, answers.chunk)
    again = earlier is not None and answers.occasion is not None and earlier["occasion"] == answers.occasion
    mode: OnExisting = "resume" if again or earlier is None else on_existing
    if earlier is None:
        put_answers(folder, answers, since=0)
    else:
        check_answers(folder, earlier, answers, mode)
    for name in filter(lambda name: names.is_draft_of(name, answers.chunk), folder.names()):
        folder.remove(name)
    older = {str(name): size for name, size in resume.files_of(folder, answers.chunk)[1].items()}
    totals, unbooked = resume.steadily(folder, lambda: resume.books(folder, answers.chunk))
    rows_file, book, fence = _create(folder, answers.chunk, fence, str(make_id()))
    for call in unbooked:
        book.write(ledger.settled_line(call))
    since = earlier["since"] if earlier is not None else 0
    if mode == "restart":
        since = fence
        for part in resume.files_of(folder, answers.chunk)[0]:
            if part.fence != fence:
                folder.remove(str(part))
    if earlier is not None and earlier != content_of(answers, since):
        put_answers(folder, answers, since)
    where = resume.steadily(
        folder, lambda: resume.rows_of(folder, answers.chunk, answers.start, answers.stop, since)
    )
    return ResultStore(
        folder=folder,
        answers=answers,
        fence=fence,
        since=since,
        where=where,
        totals=totals,
        cut_off=len(totals.open),
        earlier=older,
        _rows=rows_file,
        _ledger=book,
        round=round,
    )


def _create(folder: Folder, chunk: int, fence: int, id: str) -> tuple[Appender, Appender, int]:
    """Create the files of this try; a name that is taken means that somebody else has the number."""
    for candidate in range(fence, fence + 1000):
        with contextlib.suppress(FileExistsError), contextlib.ExitStack() as undo:
            book = folder.create(str(PartName(chunk, candidate, 0, "ledger")), ledger.begun_line(id))
            undo.callback(book.close)
            opened = folder.create(str(PartName(chunk, candidate, 0)))
            undo.pop_all()
            return opened, book, candidate
    raise StoreError(f"A thousand tries of chunk {chunk} have files in {folder.uri}; look what starts them.")
