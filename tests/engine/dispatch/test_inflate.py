"""Compressed bodies: whole ones are read, damaged ones are not, and none takes more room than it may."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.dispatch.inflate import BrokenStreamError, inflater

MOST = 10**6


def raw_deflate(body: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-15)
    return squeeze.compress(body) + squeeze.flush()


def inflated(coding: str, *parts: bytes) -> bytes:
    reader = inflater(coding)
    assert reader is not None
    body = b"".join(reader.feed(part, MOST) for part in parts)
    reader.close()
    return body


FORMS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("X-Gzip ", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("gzip", lambda body: gzip.compress(body[:5]) + gzip.compress(body[5:])),
]


@given(
    body=st.binary(max_size=300), form=st.sampled_from(FORMS), cuts=st.lists(st.integers(0, 400), max_size=4)
)
def test_a_whole_stream_is_read_however_it_is_cut_into_parts(body, form, cuts):
    coding, squeeze = form
    stream = squeeze(body)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    assert inflated(coding, *(stream[a:b] for a, b in pairwise(edges))) == body


@pytest.mark.parametrize(("coding", "squeeze"), FORMS)
def test_a_stream_that_comes_byte_by_byte_is_read(coding: str, squeeze: Callable[[bytes], bytes]):
    stream = squeeze(b"a body of some length")
    assert inflated(coding, *(bytes([byte]) for byte in stream)) == b"a body of some length"


@given(body=st.binary(min_size=1, max_size=300), form=st.sampled_from(FORMS[:4]), data=st.data())
def test_a_stream_that_is_cut_short_is_broken_even_if_all_its_text_is_there(body, form, data):
    coding, squeeze = form
    stream = squeeze(body)
    cut = data.draw(st.integers(1, len(stream) - 1))
    with pytest.raises(BrokenStreamError):
        inflated(coding, stream[:cut])


@pytest.mark.parametrize(
    "stream", [b'{"a":1}', gzip.compress(b"{}", mtime=0) + b"junk", zlib.compress(b"{}") + b"junk"]
)
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_what_is_no_such_stream_is_broken(coding: str, stream: bytes):
    with pytest.raises(BrokenStreamError, match=coding):
        inflated(coding, stream)


def test_a_stream_of_the_other_format_is_broken():
    with pytest.raises(BrokenStreamError, match="gzip"):
        inflated("gzip", zlib.compress(b"{}"))
    with pytest.raises(BrokenStreamError, match="deflate"):
        inflated("deflate", gzip.compress(b"{}"))


def test_the_shortest_stream_is_read():
    assert inflated("deflate", raw_deflate(b"")) == b""
    assert len(raw_deflate(b"")) == 2


def test_only_deflate_comes_without_its_header():
    with pytest.raises(BrokenStreamError, match="gzip"):
        inflated("gzip", raw_deflate(b"{}"))


@given(st.binary(max_size=100), st.sampled_from(["gzip", "deflate"]))
def test_any_bytes_are_read_or_broken(stream: bytes, coding: str):
    with suppress(BrokenStreamError):
        assert len(inflated(coding, stream)) <= MOST


def test_no_more_comes_out_than_there_is_room_for():
    reader = inflater("gzip")
    assert reader is not None
    assert len(reader.feed(gzip.compress(bytes(10**7)), 1000)) == 1000


@pytest.mark.parametrize("most", [1, 999, 1000, 1001])
def test_room_that_ends_with_a_member_is_not_exceeded_by_the_next(most: int):
    reader = inflater("gzip")
    assert reader is not None
    assert len(reader.feed(gzip.compress(bytes(1000)) + gzip.compress(bytes(10**6)), most)) == most


def test_an_empty_body_needs_no_stream():
    assert inflated("gzip") == b""


@pytest.mark.parametrize("coding", ["", "identity", "br", "zstd", "gzip, gzip"])
def test_other_codings_are_not_undone(coding: str):
    assert inflater(coding) is None
