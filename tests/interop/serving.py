"""Servers of other makers, each a process out of an environment of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

STARTUP_S = 180.0


@contextmanager
def served(command: Sequence[str], log: Path, *, port: int, ready: str, **env: str) -> Iterator[str]:
    """
    Run a server as long as the block; yields its base URL.

    :param log: where its output goes.
    :param ready: a path that answers once the server is up.
    :param env: further variables of its environment.
    """
    surroundings: Mapping[str, str] = {**os.environ, **env}
    with (
        open(log, "w", encoding="utf-8") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=surroundings) as server,
    ):
        try:
            _wait_for(f"http://127.0.0.1:{port}{ready}", server, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + STARTUP_S
    while True:
        try:
            with urlopen(url):
                return
        except (URLError, ConnectionError):
            assert server.poll() is None, f"the server ended:\n{log.read_text()[-2000:]}"
            assert time.monotonic() < until, f"the server does not answer; look into {log}"
            time.sleep(0.2)
