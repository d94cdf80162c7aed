"""One HTTP call over a socket: whatever happens on the way becomes an answer or a failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.dispatch.call import (
    BODY_CEILING,
    Answer,
    Caller,
    Target,
    most_connections,
    open_transport,
)
from airflow_provider_llmbatch.engine.dispatch.redact import Redactor
from airflow_provider_llmbatch.engine.exchange import Failure
from tests.engine.rehearsal import KEY, simulated
from tests.engine.slow_tls import slow_tls

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def caller(timeout_s: float = 10.0, connections: int = 10, **further: Any) -> AsyncIterator[Caller]:
    transport = open_transport(connections, **further)
    made = Caller(transport, Redactor([KEY]), timeout_s=timeout_s, connect_timeout_s=timeout_s)
    try:
        yield made
    finally:
        await made.close()


def target(url: str) -> Target:
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    return Target(url=f"{url}/chat/completions", headers=headers)


class Departures:
    """Counts the requests that are about to leave."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[str]:
    """Serve raw bytes; ``serve`` gets each connection."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
    )
    return head + await reader.readexactly(length)


async def posted(*rules: dict[str, Any], timeout_s: float = 10.0) -> tuple[Answer | Failure, int]:
    """Post once to a simulator with these rules; return what came and how many requests left."""
    departures = Departures()
    with simulated(*rules) as simulator:
        async with caller(timeout_s) as made:
            came = await made.post(target(simulator.url), BODY, departures)
    return came, departures.count


async def test_an_answer_comes_whole():
    came, left = await posted()
    assert isinstance(came, Answer)
    assert (came.status, left) == (200, 1)
    assert json.loads(came.body)["object"] == "chat.completion"
    assert came.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("status", [301, 400, 401, 429, 500, 503])
async def test_any_status_is_an_answer_and_redirects_are_not_followed(status: int):
    came, _ = await posted({"reply": {"status": status, "headers": {"location": "/elsewhere"}}})
    assert isinstance(came, Answer)
    assert came.status == status


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ({"reset": "before"}, "reset"),
        ({"reset": "after"}, "reset"),
        ({"half_body": True}, "reset"),
        ({"broken_gzip": True}, "malformed"),
        ({"delay_s": 30}, "timeout"),
        ({"drip_s": 30}, "timeout"),
    ],
)
async def test_a_call_that_breaks_off_may_have_been_paid(reply: dict[str, Any], kind: str):
    came, left = await posted({"reply": reply}, timeout_s=0.5)
    assert isinstance(came, Failure)
    assert (came.kind, came.maybe_paid, left) == (kind, True, 1)
    assert came.message


async def test_a_service_that_cannot_be_reached_was_never_asked():
    departures = Departures()
    async with caller() as made:
        came = await made.post(target("http://127.0.0.1:9/v1"), BODY, departures)
    assert isinstance(came, Failure)
    assert (came.kind, came.maybe_paid, departures.count) == ("connect", False, 0)


async def test_a_connection_that_takes_too_long_was_never_used():
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    departures = Departures()
    async with served(say_nothing) as url, caller(timeout_s=0.3) as made:
        # The TLS handshake is part of connecting, and nobody answers it.
        came = await made.post(target(url.replace("http:", "https:")), BODY, departures)
    assert isinstance(came, Failure)
    assert (came.kind, departures.count) == ("connect", 0)


async def test_what_is_no_http_is_a_failure():
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        await writer.drain()

    async with served(babble) as url, caller() as made:
        came = await made.post(target(url), BODY, Departures())
    assert isinstance(came, Failure)
    assert (came.kind, came.maybe_paid) == ("reset", True)


async def test_a_body_over_the_ceiling_is_not_read_to_its_end():
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 2**20)
                await writer.drain()
        except ConnectionError:
            return

    async with served(flood) as url, caller() as made:
        came = await made.post(target(url), BODY, Departures())
    assert isinstance(came, Failure)
    assert (came.kind, came.status, came.maybe_paid) == ("too_large", 200, True)
    assert str(BODY_CEILING) in came.message


def answered(text: str) -> bytes:
    body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


async def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next_one():
    calls, strays = 0, 0

    async def answer_twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls, strays
        while True:
            await read_request(reader)
            calls += 1
            writer.write(answered(f"answer {calls}"))
            await writer.drain()
            # The caller has the whole answer and has put the connection back by now.
            await asyncio.sleep(0.05)
            writer.write(answered("stray"))
            await writer.drain()
            strays += 1

    said = []
    async with served(answer_twice) as url, caller(connections=1) as made:
        for number in range(3):
            came = await made.post(target(url), BODY, Departures())
            assert isinstance(came, Answer)
            said.append(json.loads(came.body)["choices"][0]["message"]["content"])
            while strays <= number:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
    assert said == ["answer 1", "answer 2", "answer 3"]


@pytest.mark.parametrize("error", [ValueError("no"), OSError("disk full"), TimeoutError()])
async def test_what_calls_a_request_off_is_no_failure_of_the_network(error: Exception):
    def refuse() -> None:
        raise error

    with simulated() as simulator:
        async with caller() as made:
            with pytest.raises(type(error)) as raised:
                await made.post(target(simulator.url), BODY, refuse)
            assert simulator.arrivals() == []
    assert raised.value is error


class CalledOffError(Exception):
    pass


def call_off() -> None:
    raise CalledOffError


async def test_a_request_that_is_called_off_never_arrives_and_its_connection_serves_the_next():
    with simulated() as simulator:
        async with caller(connections=1) as made:
            for _ in range(3):
                with pytest.raises(CalledOffError):
                    await made.post(target(simulator.url), BODY, call_off)
            assert isinstance(await made.post(target(simulator.url), BODY, Departures()), Answer)
        assert len(simulator.arrivals()) == 1


async def test_the_last_look_comes_after_connecting_however_long_that_takes(tmp_path: Path):
    began: list[float] = []
    looked_at: list[float] = []
    loop = asyncio.get_running_loop()
    with simulated() as simulator, slow_tls(simulator.url, tmp_path, 0.4) as (url, certificate):
        async with caller(ca_file=certificate) as made:
            for _ in range(2):
                began.append(loop.time())
                came = await made.post(target(url), BODY, lambda: looked_at.append(loop.time()))
                assert isinstance(came, Answer)
    assert looked_at[0] - began[0] >= 0.4
    assert looked_at[1] - began[1] < 0.2


async def test_a_certificate_that_nobody_vouches_for_is_not_trusted(tmp_path: Path):
    departures = Departures()
    with simulated() as simulator, slow_tls(simulator.url, tmp_path, 0.0) as (url, _):
        async with caller() as made:
            came = await made.post(target(url), BODY, departures)
        assert simulator.arrivals() == []
    assert isinstance(came, Failure)
    assert (came.kind, departures.count) == ("connect", 0)
    assert "certificate" in came.message.lower()


async def test_calls_share_connections_and_never_open_more_than_there_are():
    with simulated(latency_s=0.05, jitter=0.0) as simulator:
        async with caller(connections=3) as made:
            came = await asyncio.gather(
                *(made.post(target(simulator.url), BODY, Departures()) for _ in range(12))
            )
        assert all(isinstance(one, Answer) for one in came)
        assert simulator.stats()["max_in_flight"] == 3


async def test_no_key_is_in_an_answer_or_a_failure():
    """P90."""
    echo = {"status": 401, "error": {"message": "wrong key"}, "echo_authorization": True}
    came, _ = await posted({"reply": echo})
    assert isinstance(came, Answer)
    assert KEY.encode() not in came.body
    assert b"***" in came.body


def test_the_number_of_connections_leaves_room_for_other_files():
    assert most_connections() >= 1


def test_a_target_does_not_show_its_key():
    """P90."""
    assert KEY not in repr(target("http://host/v1"))
