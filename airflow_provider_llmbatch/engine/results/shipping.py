"""
From the spool to the store, in the background.

Lines are in the spool when a write returns. Every :data:`PART_ROWS` rows or :data:`PART_S` seconds what has
come together is sealed, and a thread stores it as a part; what a slow store leaves waiting grows into larger
parts, so writing never waits. What the store refuses for good stays in the spool and fails the next write.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.engine.results.spool import Spool, SpoolFile
from airflow_provider_llmbatch.errors import StoreError

#: A part holds about so many rows, and what came within so many seconds.
PART_ROWS = 200
PART_S = 5.0
#: Sealed files that may wait for the store before sealing pauses.
WAITING_AT_MOST = 4


class SpooledAppender:
    """
    The lines of one kind of a try, on their way through the spool.

    :param shipper: takes them to the store.
    :param name: of the first part; later ones count up.
    """

    def __init__(self, shipper: Shipper, name: PartName) -> None:
        self._shipper = shipper
        self._next = name
        self._file: SpoolFile | None = None
        self.rows = 0
        #: when the oldest line that is not sealed came
        self.since: float | None = None

    def write(self, lines: bytes) -> None:
        """See :meth:`.folder.Appender.write`."""
        self._shipper.write(self, lines)

    def close(self) -> None:
        """See :meth:`.folder.Appender.close`."""
        self._shipper.close(self)

    def spool(self, spool: Spool, lines: bytes, now: float) -> None:
        """Hand lines to the disk."""
        while self._file is None:
            try:
                self._file = spool.create(self._next)
            except FileExistsError:
                self._next = replace(self._next, n=self._next.n + 1)
        self._file.append(lines)
        self.since = now if self.since is None else self.since
        self.rows += lines.count(b"\n") if self._next.kind == "part" else 0

    def seal(self) -> SpoolFile | None:
        """Return what has come together and begin anew."""
        file, self._file = self._file, None
        if file is not None:
            self._next = replace(self._next, n=self._next.n + 1)
            self.rows, self.since = 0, None
        return file


class Shipper:
    """
    Takes sealed files to the store, one after the other, in a thread that lives while a file is open.

    :param spool: where lines wait.
    :param store: stores the lines of a part under its name, or one further on.
    :param part_rows: rows after which a part is sealed.
    :param part_s: seconds after which a part is sealed.
    :param now: seconds that only go forward.
    """

    def __init__(
        self,
        spool: Spool,
        store: Callable[[PartName, bytes], None],
        *,
        part_rows: int = PART_ROWS,
        part_s: float = PART_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool = spool
        self._store = store
        self._part_rows = part_rows
        self._part_s = part_s
        self._now = now
        self._changed = threading.Condition()
        self._appenders: list[SpooledAppender] = []
        self._sealed: deque[SpoolFile] = deque()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def open(self, name: PartName) -> SpooledAppender:
        """Begin the lines of one kind; what is opened first is stored first."""
        appender = SpooledAppender(self, name)
        with self._changed:
            self._appenders.append(appender)
            if self._thread is None:
                self._failure = None
                self._thread = threading.Thread(target=self._ship, name="llmbatch-parts", daemon=True)
                self._thread.start()
        return appender

    def write(self, appender: SpooledAppender, lines: bytes) -> None:
        """
        Put lines into the spool.

        :raises StoreError: when they are not there, or when the store takes no more; they are there then.
        """
        with self._changed:
            first = appender.since is None
            appender.spool(self._spool, lines, self._now())
            full = appender.rows >= self._part_rows
            if full and len(self._sealed) < WAITING_AT_MOST:
                self._seal()
            if first or full:
                self._changed.notify_all()
        self._raise()

    def close(self, appender: SpooledAppender) -> None:
        """
        Store everything that is still in the spool, and wait for it.

        :raises StoreError: when the store did not take it; it is in the spool for the next try on this host.
        """
        with self._changed:
            self._seal()
            self._appenders.remove(appender)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._sealed or self._failure is not None)
            thread = None if self._appenders else self._thread
        if thread is not None:
            thread.join()
            self._thread = None
            self._let_go()
        self._raise()

    def _seal(self) -> None:
        self._sealed.extend(file for one in self._appenders if (file := one.seal()) is not None)

    def _ship(self) -> None:
        while (file := self._next()) is not None:
            try:
                self._store(file.name, file.content())
            # whatever it is, the writer must learn of it instead of waiting for this thread
            except Exception as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                file.remove()
                self._sealed.popleft()
                self._changed.notify_all()

    def _next(self) -> SpoolFile | None:
        """Wait for a sealed file; None when no more will come."""
        with self._changed:
            while not self._sealed:
                if not self._appenders:
                    return None
                waiting = [one.since for one in self._appenders if one.since is not None]
                if waiting and min(waiting) + self._part_s <= self._now():
                    self._seal()
                else:
                    self._changed.wait(min(waiting) + self._part_s - self._now() if waiting else None)
            return self._sealed[0]

    def _let_go(self) -> None:
        """Unlock what could not be stored, so that the next try finds it."""
        for file in self._sealed:
            file.close()
        self._sealed.clear()
        self._spool.tidy()

    def _raise(self) -> None:
        if self._failure is not None:
            raise StoreError(
                f"{self._failure} What is not stored yet waits in {self._spool.path}; try again on this host."
            ) from self._failure
