"""
A server for speed tests: one fixed completion after a fixed latency, as fast as one core can.

``python -m airflow_provider_llmbatch.simulator.lean --port 0 --latency 0.05``

It reads HTTP/1.1 by hand as far as its clients need it: keep-alive, bodies with a Content-Length. It counts
no tokens and knows no limits. ``GET`` on any path tells how many calls were answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import sys
from collections.abc import Sequence

_HEAD_END = b"\r\n\r\n"
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
#: Headers larger than this end the connection.
_MAX_HEAD_BYTES = 65_536


class LeanServer:
    """
    Answers every POST with the same completion.

    :param content: text of the completion.
    :param latency_s: seconds from the whole request to the reply.
    """

    def __init__(self, content: str, latency_s: float) -> None:
        self.reply = _response(b"200 OK", completion(content))
        self.latency_s = latency_s
        self.answered = 0
        self.open = 0
        self.max_open = 0

    def stats(self) -> bytes:
        """Return the response to a GET."""
        figures = {"answered": self.answered, "in_flight": self.open, "max_in_flight": self.max_open}
        return _response(b"200 OK", json.dumps(figures).encode())


class LeanConnection(asyncio.Protocol):
    """
    One client connection.

    :param server: what answers.
    """

    def __init__(self, server: LeanServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._buffer = self._buffer + data if self._buffer else data
        while self._transport is not None and self._buffer:
            end = self._request_end()
            if end is None:
                return
            is_call = self._buffer.startswith(b"POST")
            self._buffer = self._buffer[end:]
            if is_call:
                self._server.open += 1
                self._server.max_open = max(self._server.max_open, self._server.open)
                self._loop.call_later(self._server.latency_s, self._answer)
            else:
                self._transport.write(self._server.stats())

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; answers still due go nowhere."""
        self._transport = None

    def _request_end(self) -> int | None:
        """Return where the first request ends; None while it is not all there."""
        head = self._buffer.find(_HEAD_END)
        if head < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large")
            return None
        length = _CONTENT_LENGTH.search(self._buffer, 0, head)
        if length is None and self._buffer.startswith(b"POST"):
            self._refuse(b"411 Length Required")
            return None
        end = head + len(_HEAD_END) + (int(length.group(1)) if length else 0)
        return end if len(self._buffer) >= end else None

    def _answer(self) -> None:
        self._server.open -= 1
        self._server.answered += 1
        if self._transport is not None:
            self._transport.write(self._server.reply)

    def _refuse(self, status: bytes) -> None:
        if self._transport is not None:
            self._transport.write(_response(status, b"{}"))
            self._transport.close()
            self._transport = None


def completion(content: str) -> bytes:
    """Return the body of the fixed completion."""
    message = {"role": "assistant", "content": content, "refusal": None}
    usage = {
        "prompt_tokens": 16,
        "completion_tokens": 8,
        "total_tokens": 24,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    body = {
        "id": "chatcmpl-lean",
        "object": "chat.completion",
        "created": 0,
        "model": "lean",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": usage,
    }
    return json.dumps(body).encode()


def _response(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d" % (status, len(body))
    return head + _HEAD_END + body


async def serve_until_told(host: str, port: int, server: LeanServer) -> None:
    """Serve until SIGTERM or SIGINT; the first line printed names the base URL."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, over.set)
    listener = await loop.create_server(lambda: LeanConnection(server), host, port, backlog=1024)
    chosen = listener.sockets[0].getsockname()[1]
    print(f"simulator: listening on http://{host}:{chosen}/v1", flush=True)
    await over.wait()
    listener.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to end; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m airflow_provider_llmbatch.simulator.lean", description="A server for speed tests."
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8089, help="0 takes a free one")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds of a call")
    parser.add_argument("--content", default='{"label": "ok", "score": 0.5}', help="text of every reply")
    given = parser.parse_args(arguments)
    asyncio.run(serve_until_told(given.host, given.port, LeanServer(given.content, given.latency)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
