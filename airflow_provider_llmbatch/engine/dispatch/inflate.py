"""
Undo the compression of a body, a bounded part at a time: few bytes can hold gigabytes.

Formats: gzip (RFC 1952), of one or more members; deflate (RFC 9110 §8.4.1.2), with the zlib header it should
have or without. A stream that does not reach its end is broken, even where all of its text seems to be there.
"""

from __future__ import annotations

import zlib

GZIP, DEFLATE = "gzip", "deflate"
_NAMES = {"gzip": GZIP, "x-gzip": GZIP, "deflate": DEFLATE}
#: Length of zlib's header.
HEADER_BYTES = 2
#: ``wbits`` of :func:`zlib.decompressobj`: a gzip header, a zlib header, none.
_GZIP_HEADER, _ZLIB_HEADER, _NO_HEADER = 31, 15, -15


class BrokenStreamError(ValueError):
    """The body is not what its content coding says."""


def inflater(coding: str) -> Inflater | None:
    """Return what undoes a ``content-encoding``, or None for one that is not undone here."""
    name = _NAMES.get(coding.strip().lower())
    return None if name is None else Inflater(name)


class Inflater:
    """
    Reads one compressed body.

    :param coding: :data:`GZIP` or :data:`DEFLATE`.
    """

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._stream = zlib.decompressobj(_GZIP_HEADER if coding == GZIP else _ZLIB_HEADER)
        self._began = False
        self._held = b""

    def feed(self, data: bytes, most: int) -> bytes:
        """
        Return what ``data`` adds to the body.

        :param most: no more bytes than this come back; a caller who got as many must stop.
        :raises BrokenStreamError: when ``data`` does not go on with the stream.
        """
        if not self._began:
            # Whether there is a header cannot be told from its first byte.
            data, self._held = self._held + data, b""
            if len(data) < HEADER_BYTES:
                self._held = data
                return b""
        parts: list[bytes] = []
        while data and most > 0:
            if self._stream.eof:
                self._next_member()
            part = self._inflate(data, most)
            parts.append(part)
            most -= len(part)
            data = self._stream.unused_data
        return b"".join(parts)

    def close(self) -> None:
        """
        Say that the body is over.

        :raises BrokenStreamError: when the stream is not.
        """
        if self._held or (self._began and not self._stream.eof):
            raise BrokenStreamError(f"The {self._coding} stream is cut short.")

    def _next_member(self) -> None:
        if self._coding != GZIP:
            raise BrokenStreamError(f"More bytes follow the {self._coding} stream.")
        self._stream = zlib.decompressobj(_GZIP_HEADER)

    def _inflate(self, data: bytes, most: int) -> bytes:
        try:
            part = self._stream.decompress(data, most)
        except zlib.error as error:
            if self._began or self._coding != DEFLATE:
                raise BrokenStreamError(f"The {self._coding} stream is damaged: {error}.") from None
            self._stream = zlib.decompressobj(_NO_HEADER)
            self._began = True
            return self._inflate(data, most)
        self._began = True
        return part
