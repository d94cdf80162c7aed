"""
The simulator as an HTTP server: on the running loop or in a thread.

``POST /v1/chat/completions`` and ``GET /v1/models`` are OpenAI's; ``/_sim/arrivals``, ``/_sim/stats``,
``/_sim/limits``, ``/_sim/scenario`` and ``/_sim/reset`` are for whoever rehearses.

.. code-block:: python

    with running(SimulatorSettings(rpm=60)) as url:  # http://127.0.0.1:<port>/v1
        ...
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web

from airflow_provider_llmbatch.simulator import control, shapes
from airflow_provider_llmbatch.simulator.answers import JSON_TYPE
from airflow_provider_llmbatch.simulator.control import SERVICE
from airflow_provider_llmbatch.simulator.count import counter
from airflow_provider_llmbatch.simulator.deliver import deliver
from airflow_provider_llmbatch.simulator.service import Service
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings
from airflow_provider_llmbatch.simulator.shapes import ApiError

MAX_BODY_BYTES = 64 * 2**20
#: Connections that may wait to be accepted.
BACKLOG = 1024
#: Seconds that open calls are given at the end.
SHUTDOWN_S = 0.5
#: What :attr:`.Arrival.status` says when the client went away before the answer.
CLIENT_LEFT = 499
#: Parts of OpenAI's API that exist and are not played.
UNBUILT = frozenset(
    {
        "assistants",
        "audio",
        "batches",
        "completions",
        "containers",
        "conversations",
        "embeddings",
        "evals",
        "files",
        "fine_tuning",
        "images",
        "moderations",
        "realtime",
        "responses",
        "threads",
        "uploads",
        "vector_stores",
        "videos",
    }
)

Clock = Callable[[], float]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(service: Service) -> web.Application:
    """Return the web application around ``service``."""
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_answer_errors])
    app[SERVICE] = service
    app.add_routes(control.routes())
    app.add_routes(
        [
            web.post("/v1/chat/completions", _chat),
            web.post("/openai/deployments/{deployment}/chat/completions", _chat),
            web.get("/v1/models", _models),
            web.route("*", "/{path:.*}", _elsewhere),
        ]
    )
    return app


async def _chat(request: web.Request) -> web.StreamResponse:
    service = request.app[SERVICE]
    number, answer = service.receive(
        await request.read(),
        authorization=request.headers.get("authorization", ""),
        api_key=request.headers.get("api-key", ""),
        deployment=request.match_info.get("deployment"),
    )
    status = CLIENT_LEFT
    try:
        await asyncio.sleep(answer.wait_s)
        response, status = await deliver(request, answer)
    finally:
        service.finish(number, status)
    return response


async def _models(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    service.find_key(request.headers.get("authorization", ""), request.headers.get("api-key", ""))
    names = service.settings.models or ("simulated",)
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "simulator"} for name in names]
    return web.json_response({"object": "list", "data": models})


async def _elsewhere(request: web.Request) -> web.Response:
    steps = request.path.strip("/").split("/")
    if steps[0] == "v1" and len(steps) > 1 and steps[1] in UNBUILT:
        raise shapes.not_built(request.method, request.path)
    if request.path in ("/v1/chat/completions", "/v1/models"):
        raise ApiError(405, f"Not allowed to {request.method} on {request.path}.")
    raise ApiError(404, f"Invalid URL ({request.method} {request.path})")


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        headers = {"content-type": JSON_TYPE, **error.headers}
        return web.Response(status=error.status, body=error.body, headers=headers)


@asynccontextmanager
async def serve(settings: SimulatorSettings, *, clock: Clock | None = None) -> AsyncIterator[str]:
    """
    Serve on the running loop; yield the base URL, ``http://host:port/v1``.

    :param settings: what the simulator is told.
    :param clock: Unix seconds that never go back; the machine's by default.
    """
    service = Service(settings, count=counter(settings.count_tokens), clock=clock or steady_clock())
    # A call that its client gave up ends at once, so that calls in flight are counted as they are.
    runner = web.AppRunner(
        application(service), access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port, backlog=BACKLOG)
        await site.start()
        port = runner.addresses[0][1]
        yield f"http://{settings.host}:{port}/v1"
    finally:
        await runner.cleanup()


@contextmanager
def running(settings: SimulatorSettings, *, clock: Clock | None = None) -> Iterator[str]:
    """Serve in a thread; yield the base URL."""
    simulator = Simulator(settings, clock=clock)
    try:
        yield simulator.start()
    finally:
        simulator.stop()


class Simulator:
    """
    A simulator in a thread of its own.

    :param settings: what it is told.
    :param clock: Unix seconds that never go back; the machine's by default.
    """

    def __init__(self, settings: SimulatorSettings, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._end: Callable[[], None] = lambda: None

    def start(self) -> str:
        """
        Listen, and return the base URL.

        :raises OSError: when the port is taken.
        """
        ready: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="simulator", daemon=True)
        self._thread.start()
        return ready.result()

    def stop(self) -> None:
        """End all connections and the thread; calling it again does nothing."""
        if self._thread is not None:
            self._end()
            self._thread.join()
            self._thread = None

    def _run(self, ready: Future[str]) -> None:
        try:
            asyncio.run(self._serve(ready))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _serve(self, ready: Future[str]) -> None:
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        async with serve(self._settings, clock=self._clock) as url:
            self._end = lambda: _call_if_open(loop, over.set)
            ready.set_result(url)
            await over.wait()


def steady_clock() -> Clock:
    """Return a clock of Unix seconds that starts right and never jumps."""
    start = time.time() - time.monotonic()
    return lambda: start + time.monotonic()


def _call_if_open(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
