"""Sending an answer over HTTP, down to connections that break half way."""

from __future__ import annotations

import asyncio
import socket
import struct

from aiohttp import web

from airflow_provider_llmbatch.simulator.answers import Answer

#: Pieces that a trickling body is sent in.
DRIP_PIECES = 20
#: What :attr:`.Arrival.status` says of a connection that was reset before anything was sent.
NOTHING_SENT = 0


async def deliver(request: web.Request, answer: Answer) -> tuple[web.StreamResponse, int]:
    """
    Send ``answer`` and return the response with the status that reached the wire.

    Waiting is the caller's part.
    """
    if answer.cut == "before":
        _reset(request)
        return web.Response(), NOTHING_SENT
    if answer.cut is None and not answer.drip_s:
        response = web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        await response.prepare(request)
        await response.write_eof()
        return response, answer.status
    stream = web.StreamResponse(status=answer.status, headers=answer.headers)
    stream.content_length = len(answer.body)
    await stream.prepare(request)
    if answer.cut is None:
        await _drip(stream, answer)
    else:
        await _break(request, stream, answer)
    return stream, answer.status


async def _drip(stream: web.StreamResponse, answer: Answer) -> None:
    size = max(1, -(-len(answer.body) // DRIP_PIECES))
    for start in range(0, len(answer.body), size):
        await asyncio.sleep(answer.drip_s / DRIP_PIECES)
        await stream.write(answer.body[start : start + size])
    await stream.write_eof()


async def _break(request: web.Request, stream: web.StreamResponse, answer: Answer) -> None:
    """Send half of the body; then reset the connection, or end it as if that had been all."""
    await stream.write(answer.body[: len(answer.body) // 2])
    stream.force_close()
    if answer.cut == "after":
        # Let the first half leave before the reset throws away what is still queued.
        await asyncio.sleep(0.02)
        _reset(request)
    elif request.transport is not None:
        request.transport.close()


def _reset(request: web.Request) -> None:
    """End the connection with a TCP reset instead of a polite close."""
    if request.transport is None:
        return
    connection = request.transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.transport.abort()
