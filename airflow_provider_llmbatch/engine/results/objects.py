"""
A result folder on an object store, or on any other file system that fsspec knows.

An object is written once and whole. So rows and the ledger come as many parts, and wait in a spool on this
host's disk until theirs is stored (:mod:`.shipping`). What a killed process has left in the spool is stored
when a folder is opened for writing on the same host. Another host knows what is stored: the calls since the
last part are unknown there, and the rows since then are paid for again.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from airflow_provider_llmbatch.engine.locations import bare
from airflow_provider_llmbatch.engine.results import names
from airflow_provider_llmbatch.engine.results.blocks import Blocks
from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.engine.results.shipping import PART_ROWS, PART_S, Shipper, SpooledAppender
from airflow_provider_llmbatch.engine.results.spool import Spool
from airflow_provider_llmbatch.engine.results.within import within
from airflow_provider_llmbatch.errors import ConfigurationError, StoreError

#: Seconds between the tries of one operation, on top of what the store's driver does.
BACK_OFF_S = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Bytes that are written at once when a file is larger.
WRITE_BYTES = 8 * 2**20
#: Operations at the same time.
AT_ONCE = 8
#: Seconds that one operation may take, whatever the driver's own time-outs leave out.
OPERATION_S = 60.0

T = TypeVar("T")


class ObjectFolder:
    """
    A folder on a file system of fsspec.

    :param uri: what a person finds it by.
    :param files: the file system.
    :param path: the folder on it.
    :param read_only: make nothing, and leave the spool alone.
    :param spool_root: directory of the spools; one below the system's temporary directory when None.
    :param part_rows: rows after which a part is stored.
    :param part_s: seconds after which a part is stored.
    :param operation_s: seconds that one operation may take.
    :param sleep: waits between tries.
    :raises StoreError: when what earlier processes left in the spool cannot be stored.
    """

    read_ahead = AT_ONCE

    def __init__(
        self,
        uri: str,
        files: Any,
        path: str,
        *,
        read_only: bool = False,
        spool_root: Path | None = None,
        part_rows: int = PART_ROWS,
        part_s: float = PART_S,
        operation_s: float = OPERATION_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._uri = uri.rstrip("/")
        self._files = files
        self._path = path.rstrip("/")
        self._operation_s = operation_s
        self._sleep = sleep
        #: bytes of the parts that were listed: a part never changes
        self._known: dict[str, int] = {}
        self._exclusive = True
        spool = Spool(spool_root or Path(tempfile.gettempdir(), "llmbatch-spool"), self._uri)
        self._shipper = Shipper(spool, self._store_part, part_rows=part_rows, part_s=part_s)
        if not read_only:
            with spool.left() as left:
                for name, lines in left:
                    self._store_part(name, lines)
            spool.tidy()

    @property
    def uri(self) -> str:
        """The URL."""
        return self._uri

    def sizes(self) -> dict[str, int]:
        """See :meth:`.Folder.sizes`."""
        try:
            listed = self._patiently("list", "", lambda: self._listing())
        except FileNotFoundError:
            listed = {}
        self._known = {name: size for name, size in listed.items() if names.parse(name) is not None}
        return listed

    def names(self) -> list[str]:
        """See :meth:`.Folder.names`."""
        return list(self.sizes())

    def open(self, name: str) -> BinaryIO:
        """See :meth:`.Folder.open`."""
        path = self._full(name)
        if names.parse(name) is None:
            # Small, and may be replaced at any time: one look gets all of it.
            return io.BytesIO(self._patiently("read", name, lambda: self._files.cat_file(path)))
        size = self._known.get(name)
        if size is None:
            size = self._patiently("read", name, lambda: int(self._files.info(path)["size"]))

        def read(start: int, stop: int) -> bytes:
            return self._patiently(
                "read", name, lambda: bytes(self._files.cat_file(path, start=start, end=stop))
            )

        return io.BufferedReader(Blocks(read, size))

    def create(self, name: str, first: bytes = b"") -> SpooledAppender:
        """See :meth:`.Folder.create`; what is appended comes in parts with higher numbers."""
        part = names.parse(name)
        if part is None:
            raise ValueError(f"{name} is neither a part nor a ledger")
        if first:
            self._put_once(name, first)
        return self._shipper.open(replace(part, n=part.n + 1))

    def put(self, name: str, chunks: Iterator[bytes], *, replace: bool = False) -> None:
        """See :meth:`.Folder.put`."""
        pieces = _pieces(chunks)
        content = next(pieces, b"")
        if len(content) >= WRITE_BYTES:
            self._stream(name, itertools.chain([content], pieces), replace)
        elif replace:
            path = self._full(name)
            self._write(name, lambda: self._files.pipe_file(path, content))
        else:
            self._put_once(name, content)

    def remove(self, name: str) -> None:
        """See :meth:`.Folder.remove`."""
        with contextlib.suppress(FileNotFoundError):
            self._patiently("remove", name, lambda: self._files.rm_file(self._full(name)))
        self._known.pop(name, None)

    def retire(self, read: Mapping[str, int]) -> dict[str, bytes]:
        """See :meth:`.Folder.retire`; nothing is ever added to an object."""
        with ThreadPoolExecutor(AT_ONCE, "llmbatch-remove") as pool:
            list(pool.map(self.remove, read))
        return {}

    def _full(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _listing(self) -> dict[str, int]:
        # Other processes write here as well, so what the driver remembers is worth nothing.
        self._files.invalidate_cache(self._path)
        entries = self._files.ls(self._path, detail=True)
        self._files.invalidate_cache(self._path)
        found = {e["name"].rpartition("/")[2]: int(e["size"] or 0) for e in entries if e["type"] == "file"}
        return {name: found[name] for name in sorted(found) if name}

    def _store_part(self, name: PartName, lines: bytes) -> None:
        """Store the lines of a part, under the next number when its own is taken by other lines."""
        while lines:
            try:
                self._put_once(str(name), lines)
            except FileExistsError:
                name = replace(name, n=name.n + 1)
            else:
                return

    def _put_once(self, name: str, content: bytes) -> None:
        """
        Create an object; to find that very content there is fine.

        :raises FileExistsError: when the name is taken by other content.
        """
        path = self._full(name)

        def attempt() -> None:
            try:
                self._create(path, content)
            except PermissionError:
                raise
            # What it says differs from store to store, and the answer to an earlier try may have got
            # lost: the object itself tells what happened.
            except Exception as error:
                try:
                    self._files.invalidate_cache(path)
                    there = self._files.cat_file(path)
                except FileNotFoundError:
                    raise error from None
                if there != content:
                    raise FileExistsError(errno.EEXIST, "holds other lines", path) from error

        self._write(name, attempt)

    def _create(self, path: str, content: bytes) -> None:
        if self._exclusive:
            try:
                self._files.pipe_file(path, content, mode="create")
            except (NotImplementedError, OSError) as error:
                if isinstance(error, OSError) and error.errno != errno.ENOSYS:
                    raise
                self._exclusive = False
            else:
                return
        # Names hold the number of the try, so nobody else takes this one in between.
        self._files.invalidate_cache(path)
        if self._files.exists(path):
            raise FileExistsError(errno.EEXIST, "is there", path)
        self._files.pipe_file(path, content)

    def _stream(self, name: str, pieces: Iterator[bytes], replace: bool) -> None:
        """Write a large file in pieces; it is there when the last one is."""
        path = self._full(name)
        if not replace and self._patiently("look at", name, lambda: self._files.exists(path)):
            raise FileExistsError(errno.EEXIST, "is there", path)
        file = self._write(name, lambda: self._files.open(path, "wb", block_size=WRITE_BYTES))
        try:
            with _told("write", f"{self._uri}/{name}"):
                for piece in pieces:
                    within(self._operation_s, functools.partial(file.write, piece))
                within(self._operation_s, file.close)
        except BaseException:
            _abandon(file)
            raise

    def _write(self, name: str, act: Callable[[], T]) -> T:
        try:
            return self._patiently("write", name, act)
        except FileNotFoundError as error:
            raise StoreError(
                f"Cannot write {self._uri}/{name}: {error}. Make the bucket, or correct the URL."
            ) from error

    def _patiently(self, what: str, name: str, act: Callable[[], T]) -> T:
        """
        Do something again as long as it fails for reasons that may pass.

        :raises FileNotFoundError: when the object is not there.
        :raises FileExistsError: when it is.
        :raises StoreError: for everything else.
        """
        where = f"{self._uri}/{name}" if name else self._uri
        for delay in BACK_OFF_S:
            try:
                return within(self._operation_s, act)
            except (FileNotFoundError, FileExistsError):
                raise
            except PermissionError:
                break
            # drivers raise errors of their own making
            except Exception:
                self._sleep(delay)
        with _told(what, where):
            return within(self._operation_s, act)


@contextlib.contextmanager
def _told(what: str, where: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, FileExistsError, StoreError):
        raise
    except PermissionError as error:
        raise StoreError(f"Not allowed to {what} {where}: {error}. Grant the worker access to it.") from error
    # drivers raise errors of their own making; none of them may pass for an empty folder
    except Exception as error:
        raise StoreError(
            f"Cannot {what} {where}: {type(error).__name__}: {error}. Check that the store can be reached, "
            "and clear the task."
        ) from error


def _pieces(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of at least :data:`WRITE_BYTES`, but for the last one."""
    piece = bytearray()
    for chunk in chunks:
        piece += chunk
        if len(piece) >= WRITE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _abandon(file: Any) -> None:
    """Throw away what was written; closing the file, or letting it go, would publish it."""
    with contextlib.suppress(Exception):
        file.discard()
    with contextlib.suppress(AttributeError):
        file.closed = True


def locate(url: str, files: Any | None) -> tuple[Any, str]:
    """
    Return the file system of a URL and the path on it.

    :param files: the file system; chosen from the URL when None. A connection id before an ``@`` in the URL
        has done its part when this one was made.
    :raises ConfigurationError: when it is not known or not installed.
    """
    if files is not None:
        return files, files._strip_protocol(bare(url))
    from fsspec.core import url_to_fs

    try:
        found, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(
            f"{url} cannot be opened: {error}. Install the driver of its file system (for s3:// "
            "airflow-provider-llmbatch[s3]), or correct the URL."
        ) from error
    return found, path
