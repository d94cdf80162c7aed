"""
What runs have cost, from the bills and ledgers that their tasks left on storage.

Reading is bounded, so that years of runs do not hold up a page: the latest :data:`MOST_RUNS` runs are read,
and of ledgers without a bill (those of chunks that have not ended) :data:`MOST_BYTES`. What is left out is
counted and told.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_provider_llmbatch.errors import StoreError
from airflow_provider_llmbatch.operators.places import (
    NOTE_FILE,
    dag_folder,
    read_note,
    run_folder,
)
from airflow_provider_llmbatch.operators.storage import filesystem_of, open_folder
from airflow_provider_llmbatch.settings import Settings

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.results.bills import Ledgers
    from airflow_provider_llmbatch.engine.results.folder import Folder
    from airflow_provider_llmbatch.engine.results.spending import Spent

#: Most runs that are read, and most bytes of ledgers whose chunk has no bill.
MOST_RUNS, MOST_BYTES = 1000, 64 * 2**20
#: Runs that are read at the same time: on object stores each answer takes its time.
AT_ONCE = 16

#: DAG and run.
Run = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A run as Airflow knows it."""

    began: datetime
    #: None while it goes on
    ended: datetime | None


@dataclass(slots=True, kw_only=True)
class Costs:
    """What was found, and what was not."""

    #: what each DAG has spent
    spent: list[tuple[str, Spent]] = field(default_factory=list)
    #: runs that were read
    runs: int = 0
    #: runs beyond :data:`MOST_RUNS`, and runs of the time that have nothing on storage
    left_out: int = 0
    without_results: int = 0
    #: chunks that have not ended whose ledgers are beyond :data:`MOST_BYTES`
    unread: int = 0
    #: why runs could not be read, one sentence each
    unreadable: list[str] = field(default_factory=list)


class Allowance:
    """
    Says how much more may be read; threads share it.

    :param left: bytes.
    """

    def __init__(self, left: int) -> None:
        self._left = left
        self._lock = threading.Lock()

    def take(self, count: int) -> bool:
        """Return whether so many bytes may be read, and take them."""
        with self._lock:
            if count > self._left:
                return False
            self._left -= count
            return True


def costs_of(
    settings: Settings,
    dags: Iterable[str],
    known: Mapping[Run, Known],
    since: datetime,
    *,
    most_runs: int = MOST_RUNS,
    most_bytes: int = MOST_BYTES,
) -> Costs:
    """
    Return what the runs of some DAGs have spent that had not ended before a time.

    :param known: runs of these DAGs as Airflow knows them; what it has forgotten is read all the same.
    :param since: with a time zone.
    :raises StoreError: when the runs cannot be listed.
    """
    stored = [(dag, run) for dag in dags for run in _runs(settings, dag)]
    there = set(stored)
    late = {run: each for run, each in known.items() if each.ended is None or each.ended >= since}
    wanted = sorted(there & late.keys(), key=lambda run: late[run].began, reverse=True)
    wanted += sorted(there - known.keys(), reverse=True)
    found = Costs(
        runs=min(len(wanted), most_runs),
        left_out=max(0, len(wanted) - most_runs),
        without_results=len(late.keys() - there),
    )
    _read(settings, wanted[:most_runs], Allowance(most_bytes), found)
    return found


def _runs(settings: Settings, dag: str) -> Iterator[str]:
    from airflow_provider_llmbatch.engine.results.tree import names_in

    place = dag_folder(settings.results_path, dag)
    return map(unquote, names_in(place, filesystem=filesystem_of(place)))


def _read(settings: Settings, runs: Sequence[Run], allowance: Allowance, found: Costs) -> None:
    elsewhere: dict[str, str] = {}
    # Fetched here: a connection is not to be looked up by many threads at once.
    files = filesystem_of(settings.results_path)
    with ThreadPoolExecutor(AT_ONCE, "llmbatch-costs") as pool:
        readers = [_Reader(settings, run, files, allowance) for run in runs]
        for reader in pool.map(_Reader.read, readers):
            _take_in(found, reader)
            for place in reader.elsewhere:
                elsewhere.setdefault(place, reader.dag)
    for place, dag in elsewhere.items():
        # Outside of ``results_path``, where several runs may share a folder: it is counted once.
        reader = _Reader(settings, (dag, ""), None, allowance)
        reader.read_place(place)
        _take_in(found, reader)


def _take_in(found: Costs, reader: _Reader) -> None:
    found.spent.extend((reader.dag, spent) for spent in reader.spent)
    found.unread += reader.unread
    found.unreadable.extend(reader.unreadable)


class _Reader:
    """Reads what one run has left."""

    def __init__(self, settings: Settings, run: Run, filesystem: object | None, allowance: Allowance) -> None:
        self._place = run_folder(settings.results_path, *run) if run[1] else ""
        self._files = filesystem
        self._allowance = allowance
        self.dag = run[0]
        self.spent: list[Spent] = []
        self.elsewhere: list[str] = []
        self.unread = 0
        self.unreadable: list[str] = []

    def read(self) -> _Reader:
        """Read the folders of the run."""
        from airflow_provider_llmbatch.engine.results.folder import open_folder as open_with
        from airflow_provider_llmbatch.engine.results.tree import files_below

        try:
            tree = files_below(self._place, filesystem=self._files)
            for place, sizes in tree.items():
                folder = open_with(place, filesystem=self._files, read_only=True)
                self._read_folder(folder, sizes)
                if NOTE_FILE in sizes:
                    self._note(folder, tree.keys())
        except StoreError as error:
            self.unreadable.append(str(error))
        return self

    def read_place(self, place: str) -> None:
        """Read a folder that a task has named."""
        try:
            folder = open_folder(place, read_only=True)
            self._read_folder(folder, folder.sizes())
        except StoreError as error:
            self.unreadable.append(str(error))

    def _note(self, folder: Folder, known: Collection[str]) -> None:
        note = read_note(folder)
        if note is not None and _path(note.result_path) not in set(map(_path, known)):
            self.elsewhere.append(note.result_path)

    def _read_folder(self, folder: Folder, sizes: Mapping[str, int]) -> None:
        from airflow_provider_llmbatch.engine.results import bills

        for chunk, ledgers in bills.ledgers_of(sizes).items():
            self.spent.extend(self._bill(folder, chunk, ledgers, names=sizes))

    def _bill(self, folder: Folder, chunk: int, ledgers: Ledgers, names: Collection[str]) -> list[Spent]:
        from airflow_provider_llmbatch.engine.results import bills
        from airflow_provider_llmbatch.engine.results.names import bill_file

        bill = bills.read(folder, chunk, ledgers) if bill_file(chunk) in names else None
        if bill is not None:
            return bill
        if not self._allowance.take(sum(ledgers.values())):
            self.unread += 1
            return []
        return bills.add_up(folder, ledgers)


def _path(place: str) -> str:
    """Return a place in one spelling, whether it is a path or the URL of one."""
    return place.removeprefix("file://").rstrip("/")
