"""
Hundreds of odd answers over a real socket: in pieces, with pauses, cut off, reset or without an end.

Each call ends in time, in one outcome or one advice; where it may end ``ok``, it has the text that was meant
for it and no other call's. LLMBATCH_FUZZ=50, or ``make fuzz``, tries fifty times as many.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET

from airflow_provider_llmbatch.engine.dispatch.advise import advise
from airflow_provider_llmbatch.engine.dispatch.call import Answer
from airflow_provider_llmbatch.engine.exchange import Reply
from tests.engine.dispatch.judging import HISTORY, NOW, judge
from tests.engine.dispatch.test_call import BODY, Departures, caller, read_request, served, target

TIMES = int(os.environ.get("LLMBATCH_FUZZ", "1"))
CASES = 400
TIMEOUT_S = 2.0
AT_ONCE = 40

Luck = random.Random
SQUEEZE: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda body: body,
    "gzip, gzip": lambda body: gzip.compress(gzip.compress(body)),
}


@dataclass(frozen=True)
class Play:
    """What is sent for one request."""

    pieces: list[bytes]
    pause_s: float
    #: ``keep`` (the connection), ``close``, ``reset`` or ``hang``
    end: str


def meant(number: int) -> str:
    return f"the answer to call {number}"


def body_of(number: int, luck: Luck) -> bytes:
    good = {"choices": [{"message": {"content": meant(number)}, "finish_reason": "stop"}]}
    bodies = [
        json.dumps(good).encode(),
        json.dumps(good).encode("utf-16"),
        json.dumps({"error": {"message": "slow down", "code": 429}}).encode(),
        b"<html><h1>504 Gateway Time-out</h1></html>",
        luck.randbytes(luck.randrange(200)),
        b"",
    ]
    return bodies[min(luck.randrange(9), 8) % 6 if luck.random() < 0.4 else 0]


def head_of(body: bytes, luck: Luck) -> tuple[bytes, bytes]:
    """Return a head, and the body as it goes over the wire."""
    status = luck.choice([200] * 8 + [201, 204, 101, 103, 301, 304, 400, 404, 429, 500, 503, 999, 0])
    lines = [b"HTTP/%s %03d Whatever" % (luck.choice([b"1.1"] * 9 + [b"1.0", b"2.0"]), status)]
    if luck.random() < 0.2:
        coding = luck.choice(list(SQUEEZE))
        body = SQUEEZE[coding](body)
        lines.append(b"content-encoding: " + coding.encode())
    if luck.random() < 0.2:
        lines.append(b"content-type: application/json; charset=" + luck.choice([b"latin-1", b"\xff", b"?"]))
    if luck.random() < 0.1:
        lines.append(luck.choice([b"x: " + b"y" * 9000, b"no colon", b"\x00: z", "x: größe".encode()]))
    framing = luck.random()
    if framing < 0.6:
        wrong = luck.choice([0] * 8 + [-1, 7, 10**12])
        lines.append(b"content-length: %d" % (len(body) + wrong))
    elif framing < 0.9:
        lines.append(b"transfer-encoding: chunked")
        body = b"".join(
            b"%x\r\n%s\r\n" % (len(part), part)
            for part in (body[at : at + 20] for at in range(0, len(body), 20))
        )
        body += luck.choice([b"0\r\n\r\n"] * 5 + [b"0\r\n", b"", b"zz\r\n", b"0\r\nx: y\r\n\r\n"])
    early = luck.choice(
        [b""] * 6 + [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early\r\nx: y\r\n\r\n" * 9]
    )
    return early + b"\r\n".join(lines) + b"\r\n\r\n", body


def play_of(number: int, luck: Luck) -> Play:
    head, body = head_of(body_of(number, luck), luck)
    raw = head + body
    cuts = sorted(luck.randrange(len(raw) + 1) for _ in range(luck.randrange(4)))
    if luck.random() < 0.15:
        raw = raw[: luck.randrange(len(raw) + 1)]
    elif luck.random() < 0.1:
        spot = luck.randrange(len(head))
        raw = raw[:spot] + luck.randbytes(1) + raw[spot + 1 :]
    elif luck.random() < 0.1:
        # An answer that nobody asked for. In one piece: one that comes when the connection serves the next
        # call already cannot be told from that call's own.
        cuts = []
        raw += head + body.replace(meant(number).encode(), b"a stray")
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    return Play(
        pieces, luck.choice([0.0, 0.0, 0.01]), luck.choice(["keep"] * 4 + ["close"] * 3 + ["reset", "hang"])
    )


async def send(play: Play, writer: asyncio.StreamWriter) -> None:
    for piece in play.pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(play.pause_s)
    if play.end == "reset":
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    elif play.end == "hang":
        await asyncio.sleep(2 * TIMEOUT_S)


async def test_any_bytes_over_a_socket_end_in_time_and_in_one_outcome_or_one_advice():
    """P28, P32."""
    plays = {number: play_of(number, Luck(number)) for number in range(CASES * TIMES)}
    seen: Counter[str] = Counter()
    gate = asyncio.Semaphore(AT_ONCE)

    async def play_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await read_request(reader)
                asked = re.search(rb"/v1/(\d+)/chat", request)
                assert asked is not None
                play = plays[int(asked[1])]
                await send(play, writer)
                if play.end != "keep":
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def call(number: int) -> None:
        async with gate, asyncio.timeout(TIMEOUT_S + 30.0):
            came = await made.post(target(f"{url}/{number}"), BODY, Departures())
        if not isinstance(came, Answer):
            seen[came.kind] += 1
            assert advise(came, {}, HISTORY, NOW) is not None
            return
        read = judge(came.status, came.headers, came.body)
        advice = advise(read, came.headers, HISTORY, NOW)
        seen[type(advice).__name__] += 1
        if advice is None:
            assert isinstance(read, Reply)
            assert read.text == meant(number)

    async with served(play_back) as url, caller(timeout_s=TIMEOUT_S, connections=AT_ONCE) as made:
        await asyncio.gather(*map(call, plays))
    assert sum(seen.values()) == len(plays)
    # The cases are odd, and not all of them: each kind of end was met.
    assert {"NoneType", "Retry", "Stop", "reset", "timeout"} <= set(seen), seen
    assert seen["NoneType"] > len(plays) / 10
