"""JSON lines: one object on each line, found again by its byte offset."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from typing import Any

from airflow_provider_llmbatch.engine.items import BadItem, Item
from airflow_provider_llmbatch.engine.source.parse import bad_item, to_item
from airflow_provider_llmbatch.engine.source.row import MAX_ROW_BYTES, OpenFile, Row
from airflow_provider_llmbatch.engine.source.strict import RowProblem, read_json, refuse_half_characters
from airflow_provider_llmbatch.errors import InputError

_BUFFER_BYTES = 256 * 1024
_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


class JsonlSource:
    """
    A file of JSON lines in UTF-8; blank lines are skipped.

    :param uri: name of the file, for messages.
    :param open_file: opens it at its first byte.
    :param max_row_bytes: longest line that is read.
    """

    def __init__(self, uri: str, open_file: OpenFile, *, max_row_bytes: int = MAX_ROW_BYTES) -> None:
        self.uri = uri
        self._open = open_file
        self._limit = max_row_bytes

    def rows(self, *, start: int = 0, offset: int = 0, stop: int | None = None) -> Iterator[Row]:
        """Yield the rows from ``start``, whose line begins at byte ``offset``."""
        if start and not offset:
            yield from self._skipping(start, stop)
            return
        index = start
        # fsspec's files read a line without a limit; the standard reader keeps to one
        with self._open() as file, io.BufferedReader(file, _BUFFER_BYTES) as reader:  # type: ignore[type-var]
            reader.seek(offset)
            for number, (begin, line) in enumerate(self._lines(reader, offset), start=1):
                if stop is not None and index >= stop:
                    return
                if not line or line.isspace():
                    continue
                # after a jump the number of the line is not known
                place = ("byte", begin) if offset else ("line", number)
                yield Row(
                    index=index,
                    offset=begin,
                    raw=line,
                    read=partial(self._item, line, index, place),
                    may_chain=b'"group"' in line or b"\\u" in line,
                )
                index += 1

    def _skipping(self, start: int, stop: int | None) -> Iterator[Row]:
        for row in self.rows(stop=stop):
            if row.index >= start:
                yield row

    def _lines(self, reader: io.BufferedReader[Any], offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield where each line begins and its content; of a line over the limit one byte too much."""
        while line := reader.readline(self._limit + 1):
            begin = offset
            offset += len(line)
            if begin == 0:
                line = self._without_bom(line)
            if not line.endswith(b"\n"):
                offset += self._skip_rest(reader)
            yield begin, line.rstrip(b"\r\n")

    def _skip_rest(self, reader: io.BufferedReader[Any]) -> int:
        skipped = 0
        while rest := reader.readline(self._limit):
            skipped += len(rest)
            if rest.endswith(b"\n"):
                break
        return skipped

    def _without_bom(self, line: bytes) -> bytes:
        if line.startswith(_UTF16_BOMS):
            raise InputError(f"{self.uri} is in UTF-16; save it as UTF-8.")
        return line.removeprefix(_BOM)

    def _item(self, line: bytes, index: int, place: tuple[str, int]) -> Item | BadItem:
        where = f"{self.uri}, {place[0]} {place[1]}"
        try:
            if len(line) > self._limit:
                raise RowProblem(f"is longer than {self._limit:,} bytes; cut the text or split the row")
            values = read_json(_decoded(line))
            if b"\\u" in line:
                refuse_half_characters(values)
        except RowProblem as problem:
            return bad_item(index, where, problem)
        return to_item(values, index, where)


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise RowProblem(
            f"is not UTF-8: byte {line[error.start]:#04x} at column {error.start + 1}; save the file as UTF-8"
        ) from error
