"""
The results of one chunk while it is dispatched.

Order of writing: ``sent`` before a call leaves, then the row, then ``settled``. So a kill at any point
leaves either the row or an open ``sent``, and the next try knows which calls may have been charged.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_provider_llmbatch.engine.items import SCHEMA_VERSION, PromptRef, Result
from airflow_provider_llmbatch.engine.results import ledger, names, resume, rows
from airflow_provider_llmbatch.engine.results.folder import Appender, Folder
from airflow_provider_llmbatch.engine.results.ledger import Settled, Totals
from airflow_provider_llmbatch.engine.results.names import COMPACTED, PartName
from airflow_provider_llmbatch.engine.results.where import Where
from airflow_provider_llmbatch.errors import ConfigurationError, InputError, StoreError

OnExisting = Literal["resume", "restart", "fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the results of a chunk answer; other results are not mixed with them."""

    chunk: int
    start: int
    stop: int
    #: SHA-256 over rows, prompt, model, params and schema
    fingerprint: str
    source: str
    prompt: PromptRef
    model: str
    schema_digest: str
    #: name of the host that writes; "" where any host may
    host: str

    def to_json(self) -> dict[str, Any]:
        """Return the content of the chunk file."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {"schema_version": SCHEMA_VERSION, **values, "prompt": str(self.prompt)}


@dataclass(slots=True)
class ResultStore:
    """
    Rows and ledger of one chunk; made with :func:`open_store`.

    :param folder: where they go.
    :param answers: what they answer.
    :param fence: number of this try.
    :param where: which items have a row already.
    :param totals: what the chunk's calls have cost, earlier tries included.
    """

    folder: Folder
    answers: Answers
    fence: int
    where: Where
    totals: Totals
    #: open calls of earlier tries
    cut_off: int
    _rows: Appender
    _ledger: Appender
    _written: dict[str, int] = field(default_factory=dict)

    def sent(self, index: int, attempt: int) -> None:
        """Note that a call is about to leave."""
        self._ledger.write(ledger.sent_line(index, attempt))

    def add(self, result: Result) -> None:
        """Store the row; when this returns, the item is done."""
        self._rows.write(rows.encode(result))

    def book(self, **call: Any) -> None:
        """Book a call that is over; takes the fields of :class:`.ledger.Settled`."""
        settled = Settled(**call)
        self.totals.add(settled.usage, settled.cost, settled.maybe_paid)
        self._ledger.write(ledger.settled_line(settled))

    def row(self, index: int) -> Result:
        """Return the row that counts of an item that had one when the store was opened."""
        return rows.from_row(json.loads(self.where.line(self.folder, index)))

    @property
    def possible_double_paid(self) -> int:
        """Calls that may have been charged without leaving a reply."""
        return self.totals.maybe_paid + self.cut_off

    def close(self) -> None:
        """Finish both files."""
        self._rows.close()
        self._ledger.close()

    def compact(self) -> Where:
        """
        Put the parts together, in index order, and return where the rows lie now.

        Readers see the old parts or the new one, and the same rows in both.
        """
        parts, _ = resume.files_of(self.folder, self.answers.chunk)
        where = self._where()
        number = max((part.n for part in parts if part.fence == COMPACTED), default=-1) + 1
        whole = PartName(self.answers.chunk, COMPACTED, number)
        self.folder.put(str(whole), where.lines(self.folder))
        for part in parts:
            self.folder.remove(str(part))
        return self._where()

    def _where(self) -> Where:
        answers = self.answers
        return resume.rows_of(self.folder, answers.chunk, answers.start, answers.stop)


def open_store(folder: Folder, answers: Answers, fence: int, on_existing: OnExisting) -> ResultStore:
    """
    Open a chunk's results for writing, after a look at what is there.

    :param fence: number of this try, above any that has left a file.
    :param on_existing: ``resume`` keeps what is done, ``restart`` pays again, ``fail`` refuses.
    :raises InputError: when the results there answer another input.
    :raises ConfigurationError: when another host wrote there, or ``on_existing`` refuses.
    :raises StoreError: when what is there cannot be read.
    """
    earlier = read_answers(folder, answers.chunk)
    if earlier is not None:
        _check(folder, earlier, answers, on_existing)
    if earlier is not None and on_existing == "restart":
        for part in resume.files_of(folder, answers.chunk)[0]:
            folder.remove(str(part))
    if earlier != answers.to_json():
        content = json.dumps(answers.to_json(), indent=1).encode()
        folder.put(names.chunk_file(answers.chunk), iter([content]), replace=True)
    found = resume.survey(folder, answers.chunk, answers.start, answers.stop)
    rows_file, book, fence = _create(folder, answers.chunk, fence)
    store = ResultStore(
        folder=folder,
        answers=answers,
        fence=fence,
        where=found.where,
        totals=found.totals,
        cut_off=len(found.totals.open),
        _rows=rows_file,
        _ledger=book,
    )
    for call in found.unbooked:
        book.write(ledger.settled_line(call))
    return store


def _create(folder: Folder, chunk: int, fence: int) -> tuple[Appender, Appender, int]:
    """Create the files of this try; a name that is taken means that somebody else has the number."""
    for candidate in range(fence, fence + 1000):
        with contextlib.suppress(FileExistsError):
            book = folder.create(str(PartName(chunk, candidate, 0, "ledger")))
            return folder.create(str(PartName(chunk, candidate, 0))), book, candidate
    raise StoreError(f"A thousand tries of chunk {chunk} have files in {folder.uri}; look what starts them.")


def read_answers(folder: Folder, chunk: int) -> dict[str, Any] | None:
    """
    Return what the results of a chunk answer; None when there are none.

    :raises StoreError: when that cannot be read.
    """
    name = names.chunk_file(chunk)
    if name not in folder.names():
        return None
    with folder.open(name) as file:
        content = file.read()
    try:
        earlier: dict[str, Any] = json.loads(content)
        return earlier if isinstance(earlier["fingerprint"], str) else None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{folder.uri}/{name} cannot be read; restore it or use another result_path."
        ) from error


def _check(folder: Folder, earlier: dict[str, Any], answers: Answers, on_existing: OnExisting) -> None:
    if answers.host and earlier.get("host") not in ("", answers.host):
        raise ConfigurationError(
            f"Host {earlier.get('host')!r} wrote results to {folder.uri}, this is {answers.host!r}. A local "
            "path serves one host: set result_path or [llmbatch] results_path to storage that all workers "
            "share, and say shared_filesystem if this already is."
        )
    if on_existing == "fail":
        raise ConfigurationError(
            f"There are results in {folder.uri} and on_existing is 'fail'; use 'resume', 'restart' or "
            "another result_path."
        )
    if on_existing == "resume" and earlier["fingerprint"] != answers.fingerprint:
        now = answers.to_json()
        changed = [
            key for key in ("source", "prompt", "model", "schema_digest") if earlier.get(key) != now[key]
        ]
        raise InputError(
            f"The results in {folder.uri} answer another input (changed: "
            f"{', '.join(changed) or 'rows or params'}). Use another result_path, or on_existing='restart' "
            "to pay for all items again."
        )
