"""
One HTTP call: the only module that knows httpx and aiohttp.

The transport is httpx's interface over aiohttp's pool (measured: httpx's own pool collapses above a
hundred connections). It is called directly, below httpx's client: redirects are never followed,
cookies never kept, and no layer retries.

A connection is at hand before ``on_write`` is asked: however long connecting takes, what is looked at
then is true when the request leaves. A connection whose request is called off goes back into the pool.
One on which the service has said something unasked leaves it: that would be taken for the next answer.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import ssl
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

import aiohttp
import httpx
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.tracing import Trace
from httpx_aiohttp import AiohttpTransport

from airflow_provider_llmbatch.engine.dispatch.inflate import BrokenStreamError, inflater
from airflow_provider_llmbatch.engine.dispatch.redact import Redactor
from airflow_provider_llmbatch.engine.exchange import Failure

#: Largest body that is read, after decompression.
BODY_CEILING = 16 * 1024 * 1024

_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
#: Files that the process needs beside its connections.
OTHER_FILES = 64

#: What goes wrong on the way, as the layers below call it.
_NETWORK = (
    httpx.HTTPError,
    httpx.StreamError,
    aiohttp.ClientError,
    HttpProcessingError,
    OSError,
    ValueError,
)

#: What is asked before the request of the current task leaves.
_on_write: ContextVar[Callable[[], None]] = ContextVar("_on_write")

#: Makes a transport for so many connections.
OpenTransport = Callable[[int], httpx.AsyncBaseTransport]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a service sent back, secrets taken out."""

    status: int
    #: names in lower case
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Target:
    """Where a call goes and with which headers; never shown, since a header holds the key."""

    url: str
    headers: Mapping[str, str]
    #: both as the transport takes them, read once instead of for every call
    parsed: tuple[httpx.URL, httpx.Headers] = field(init=False)

    def __post_init__(self) -> None:
        """Read the address and the headers."""
        object.__setattr__(self, "parsed", (httpx.URL(self.url), httpx.Headers(self.headers)))


class _Connector(aiohttp.TCPConnector):
    """A pool that asks ``on_write`` once a connection is ready."""

    _used: weakref.WeakSet[ResponseHandler] | None = None

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        """Return a connection on which the request is written next."""
        used = self._used = self._used or weakref.WeakSet()
        connection = await super().connect(req, traces, timeout)
        while (protocol := connection.protocol) is not None and protocol in used and protocol.should_close:
            connection.close()
            connection = await super().connect(req, traces, timeout)
        if protocol is not None:
            used.add(protocol)
        try:
            _on_write.get()()
        except BaseException:
            connection.release()
            raise
        return connection


class PooledTransport(AiohttpTransport):
    """A transport over :class:`_Connector`."""


def open_transport(
    connections: int,
    *,
    ca_file: str | None = None,
    proxy: str | None = None,
) -> PooledTransport:
    """
    Make a transport for the current event loop.

    :param connections: size of the pool; never smaller than the number of slots.
    :param ca_file: certificates to trust instead of the usual ones, in PEM format.
    :param proxy: URL of an HTTP proxy.
    """
    context = ssl.create_default_context(cafile=ca_file) if ca_file else httpx.create_ssl_context()

    def session() -> aiohttp.ClientSession:
        connector = _Connector(limit=connections, ssl=context, keepalive_timeout=30.0)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    return PooledTransport(verify=context, client=session, proxy=httpx.Proxy(proxy) if proxy else None)


def most_connections() -> int:
    """Return how many connections the process's limit of open files leaves room for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, files - OTHER_FILES)


class Caller:
    """
    Posts JSON and returns what came back, whatever it was.

    :param transport: any httpx transport; closed with :meth:`close`.
    :param redactor: takes secrets out of what comes back.
    :param timeout_s: seconds for the whole call, the last byte included.
    :param connect_timeout_s: seconds to connect.
    """

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport,
        redactor: Redactor,
        *,
        timeout_s: float,
        connect_timeout_s: float,
    ) -> None:
        self._transport = transport
        self._redactor = redactor
        self._timeout_s = timeout_s
        self._extensions = {
            "timeout": {"connect": connect_timeout_s, "read": timeout_s, "write": timeout_s, "pool": None}
        }

    async def post(self, target: Target, body: bytes, on_write: Callable[[], None]) -> Answer | Failure:
        """
        Send ``body`` and read the answer.

        :param on_write: called when a connection is ready and the request leaves next; what it raises
            calls the request off.
        :return: an answer of any status, or why there is none; never an exception of the network.
        """
        url, headers = target.parsed
        request = httpx.Request("POST", url, headers=headers, content=body, extensions=self._extensions)
        left = False
        called_off: BaseException | None = None

        def leave() -> None:
            nonlocal left, called_off
            try:
                on_write()
            except BaseException as error:
                called_off = error
                raise
            left = True

        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._handle(request, leave)
                try:
                    return await self._read(response)
                finally:
                    await response.aclose()
        except _NETWORK as error:
            if called_off is not None:
                # The layers in between may have put it into words of their own.
                raise called_off from None
            return self._failure(error, left)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def _handle(self, request: httpx.Request, leave: Callable[[], None]) -> httpx.Response:
        if not isinstance(self._transport, PooledTransport):
            # A transport of somebody else's does not say when it has a connection.
            leave()
            return await self._transport.handle_async_request(request)
        token = _on_write.set(leave)
        try:
            return await self._transport.handle_async_request(request)
        finally:
            _on_write.reset(token)

    async def _read(self, response: httpx.Response) -> Answer | Failure:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers.raw
        }
        # A coding that was not asked for is left as it is; most often the body says what it is all the same.
        compressed = inflater(headers.get("content-encoding", ""))
        parts: list[bytes] = []
        room = BODY_CEILING
        try:
            async for raw in _stream(response):
                part = compressed.feed(raw, room + 1) if compressed else raw
                room -= len(part)
                if room < 0:
                    return _unread(response, "too_large", f"The body is larger than {BODY_CEILING} bytes.")
                parts.append(part)
            if compressed:
                compressed.close()
        except BrokenStreamError as error:
            return _unread(response, "malformed", str(error))
        return Answer(
            status=response.status_code,
            headers=headers,
            body=self._redactor.body(b"".join(parts)),
        )

    def _failure(self, error: Exception, left: bool) -> Failure:
        # What httpx says about aiohttp's errors is not always what they mean.
        cause = error.__cause__ if isinstance(error, httpx.HTTPError) and error.__cause__ else error
        message = self._redactor.text(f"{type(cause).__name__}: {cause}")[:300]
        if not left:
            if isinstance(cause, TimeoutError):
                message = f"No connection in time ({type(cause).__name__})."
            out_of_files = getattr(getattr(cause, "os_error", None), "errno", None) in _OUT_OF_FILES
            return Failure(kind="connect", message=message, code="EMFILE" if out_of_files else None)
        if isinstance(cause, TimeoutError):
            message = f"No complete answer within {self._timeout_s:g} s."
            return Failure(kind="timeout", message=message, maybe_paid=True)
        return Failure(kind="reset", message=message, maybe_paid=True)


def _unread(response: httpx.Response, kind: Literal["too_large", "malformed"], message: str) -> Failure:
    status = response.status_code
    return Failure(kind=kind, message=message, status=status, maybe_paid=not 300 <= status < 500)


def _stream(response: httpx.Response) -> httpx.AsyncByteStream:
    """Return the body as it came, past httpx's decoders, which know no ceiling."""
    if not isinstance(response.stream, httpx.AsyncByteStream):
        raise TypeError(f"{type(response.stream).__name__} is no stream that can be awaited")
    return response.stream
