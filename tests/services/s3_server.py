"""
An S3 server in a process of its own, with faults that a test asks for.

``POST /_faults`` sets the faults: a list of objects with ``method``, ``contains`` (part of the path),
``status``, ``skip`` (how many pass first), ``times``, ``delay_s`` and ``done`` (whether the request is
carried out before its answer is spoilt).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

#: Seconds that the server may take to start.
START_S = 60.0


@dataclass(frozen=True)
class Bucket:
    """A bucket on a running server."""

    url: str
    name: str

    def files(self) -> Any:
        """Return a file system that leaves retries to whoever uses it."""
        return _files(self.url)

    def folder(self, path: str, **options: Any) -> Any:
        """Open a result folder in the bucket."""
        from airflow_provider_llmbatch.engine.results.objects import ObjectFolder

        inside = f"{self.name}/{path}"
        return ObjectFolder(f"s3://{inside}", self.files(), inside, **options)

    def fail(self, *faults: dict[str, Any]) -> None:
        """Set the faults, in place of those that were."""
        request = Request(f"{self.url}/_faults", data=json.dumps(faults).encode(), method="POST")
        urlopen(request, timeout=10).close()

    def requests(self) -> list[str]:
        """Return method and path of each request since the faults were set."""
        with urlopen(f"{self.url}/_faults", timeout=10) as response:
            return list(json.load(response))


@contextmanager
def running() -> Iterator[Bucket]:
    """Start a server with an empty bucket."""
    command = [sys.executable, str(Path(__file__).resolve())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            url = process.stdout.readline().strip() if process.stdout else ""
            assert url, "the S3 server did not start"
            yield new_bucket(url)
        finally:
            _close(url)
            process.terminate()


def new_bucket(url: str) -> Bucket:
    """Make a bucket on a running server, without faults."""
    bucket = Bucket(url, f"bucket-{uuid.uuid4().hex[:12]}")
    urlopen(Request(f"{url}/{bucket.name}", method="PUT"), timeout=START_S).close()
    bucket.fail()
    return bucket


@cache
def _files(url: str) -> Any:
    import s3fs

    return s3fs.S3FileSystem(
        key="testing",
        secret="testing",
        endpoint_url=url,
        client_kwargs={"region_name": "us-east-1"},
        config_kwargs={"retries": {"max_attempts": 0}, "read_timeout": 20},
        skip_instance_cache=True,
    )


def _close(url: str) -> None:
    """Close the connections of a file system, if there is one."""
    files = _files(url)
    if files._s3 is not None:
        files.close_session(files.loop, files._s3creator)
    _files.cache_clear()


class _Faulty:
    """
    Spoils requests on their way to the server.

    :param server: a WSGI application.
    """

    def __init__(self, server: Callable[..., Iterable[bytes]]) -> None:
        self._server = server
        self._faults: list[dict[str, Any]] = []
        self._seen: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == "/_faults":
            return self._control(environ, start)
        self._seen.append(f"{method} {path}")
        fault = next((fault for fault in self._faults if self._takes(fault, method, path)), None)
        if fault is None:
            return self._server(environ, start)
        fault["times"] = fault.get("times", 1_000_000) - 1
        time.sleep(fault.get("delay_s", 0.0))
        status = fault.get("status")
        if status is None:
            return self._server(environ, start)
        if fault.get("done"):
            list(self._server(environ, lambda *_: None))
        else:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        code = {403: "AccessDenied", 501: "NotImplemented"}.get(status, "InternalError")
        body = f"<Error><Code>{code}</Code><Message>asked for</Message></Error>".encode()
        start(
            f"{status} Asked for", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
        )
        return [body]

    @staticmethod
    def _takes(fault: dict[str, Any], method: str, path: str) -> bool:
        if fault.get("method", method) != method or fault.get("contains", "") not in path:
            return False
        fault["skip"] = fault.get("skip", 0) - 1
        return fault["skip"] < 0 < fault.get("times", 1)

    def _control(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = json.dumps(self._seen).encode()
        if environ["REQUEST_METHOD"] == "POST":
            self._faults = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            self._seen.clear()
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]


def main() -> None:
    """Serve until the process is ended."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = _Faulty(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
