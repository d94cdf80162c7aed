"""Bodies and heads at the edge of what is read: sizes, compression, drips, answers before the answer."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import zlib
from collections.abc import Callable, Iterator

import pytest

from airflow_provider_llmbatch.engine.dispatch.call import BODY_CEILING, Answer
from airflow_provider_llmbatch.engine.exchange import Failure
from tests.engine.dispatch.judging import judge
from tests.engine.dispatch.test_call import BODY, Departures, caller, read_request, served, target

GOOD = json.dumps({"choices": [{"message": {"content": "fine"}}]}).encode()
TIMEOUT_S = 0.5
SQUEEZE: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, 1),
    "deflate": lambda body: zlib.compress(body, 1),
}


def head(*lines: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode()


def sized(body: bytes, *lines: str) -> bytes:
    return head(f"content-length: {len(body)}", *lines) + body


async def answered(*pieces: bytes, pause_s: float = 0.0, timeout_s: float = 10.0) -> Answer | Failure:
    """Post once to a server that sends these pieces and closes."""

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_s)
        except ConnectionError:
            return

    async with served(send) as url, caller(timeout_s=timeout_s) as made:
        return await made.post(target(url), BODY, Departures())


@pytest.mark.parametrize(("size", "fits"), [(BODY_CEILING, True), (BODY_CEILING + 1, False)])
@pytest.mark.parametrize("coding", ["identity", "gzip", "deflate"])
async def test_a_body_may_be_as_large_as_the_ceiling_and_no_larger(size: int, fits: bool, coding: str):
    came = await answered(sized(SQUEEZE.get(coding, bytes)(bytes(size)), f"content-encoding: {coding}"))
    if fits:
        assert isinstance(came, Answer)
        assert len(came.body) == size
    else:
        assert isinstance(came, Failure)
        assert (came.kind, came.status, came.maybe_paid) == ("too_large", 200, True)


async def test_a_small_body_that_unfolds_to_a_huge_one_is_not_unfolded():
    unfolded = zlib.compressobj(level=1, wbits=31)
    zeros = bytes(2**24)
    bomb = b"".join(unfolded.compress(zeros) for _ in range(8)) + unfolded.flush()
    began = time.process_time()
    came = await answered(sized(bomb, "content-encoding: gzip"))
    assert isinstance(came, Failure)
    assert came.kind == "too_large"
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(GOOD, mtime=0)[:-1],
        gzip.compress(GOOD, mtime=0)[:-8],
        gzip.compress(GOOD, mtime=0) + b"x",
        GOOD,
    ],
)
async def test_a_damaged_stream_is_malformed_with_its_status_even_if_its_text_is_whole(body: bytes):
    came = await answered(sized(body, "content-encoding: gzip"))
    assert isinstance(came, Failure)
    assert (came.kind, came.status, came.maybe_paid) == ("malformed", 200, True)


def drip(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


@pytest.mark.parametrize(
    "pieces",
    [
        [head("content-length: 500"), *drip(GOOD * 9)],
        list(drip(head("content-length: 2") * 9)),
        [b"HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n"] * 500,
        [b"HTTP/1.1 100 Continue\r\n\r\n"] * 500,
        [head("transfer-encoding: chunked"), *[b"1\r\n \r\n"] * 500],
    ],
    ids=["body", "head", "hints", "continue", "chunks"],
)
async def test_what_never_ends_ends_at_the_timeout_of_the_whole_call(pieces: list[bytes]):
    began = time.monotonic()
    came = await answered(*pieces, pause_s=0.02, timeout_s=TIMEOUT_S)
    assert isinstance(came, Failure)
    assert (came.kind, came.maybe_paid) == ("timeout", True)
    assert TIMEOUT_S <= time.monotonic() - began < TIMEOUT_S + 1.0


async def test_answers_before_the_answer_are_passed_over():
    early = b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 3
    came = await answered(early + sized(GOOD))
    assert isinstance(came, Answer)
    assert (came.status, came.body) == (200, GOOD)


async def test_a_change_of_protocols_is_no_answer():
    came = await answered(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2\r\nconnection: upgrade\r\n\r\n")
    assert isinstance(came, Answer)
    seen = judge(came.status, came.headers, came.body)
    assert isinstance(seen, Failure)
    assert (seen.kind, seen.maybe_paid) == ("malformed", True)
