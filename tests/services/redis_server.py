"""Real Redis servers for tests, each on a port of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BINARY = shutil.which("redis-server")


def need_redis() -> None:
    """Skip without a server; fail where the tests must be complete."""
    if BINARY is None:
        message = "redis-server is not installed"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


def free_port() -> int:
    """Return a port that nobody listens on, with room for a cluster bus 10,000 above."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port < 50_000:
            return port


class Server:
    """
    One redis-server, which can be stopped, killed and started again with its data.

    :param folder: its working directory.
    :param options: further options of the command line.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        need_redis()
        self.folder = folder
        self.port = free_port()
        self.options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Server:
        """Start, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [str(BINARY), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        command += ["--save", "", *self.options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.until("PONG", "ping")
        return self

    def until(self, answer: str, *words: str, seconds: float = 30.0) -> None:
        """Send a command until its answer contains ``answer``."""
        deadline = time.monotonic() + seconds
        while answer not in self.cli(*words):
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"redis-server on port {self.port} never said {answer} to {' '.join(words)}"
                )

    def cli(self, *words: str) -> str:
        """Send a command and return the answer as redis-cli prints it."""
        command = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def freeze(self) -> None:
        """Let it hold all connections and answer nobody."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen one go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a chance to say good-bye."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[Server]:
    """Run a server for a while."""
    server = Server(folder, *options)
    try:
        yield server.start()
    finally:
        server.kill()


@contextlib.contextmanager
def cluster(folder: Path, masters: int = 3) -> Iterator[Server]:
    """Run a Cluster; yields one of its nodes."""
    nodes = [Server(folder / str(n), "--cluster-enabled", "yes") for n in range(masters)]
    try:
        for node in nodes:
            node.start()
        addresses = [f"127.0.0.1:{node.port}" for node in nodes]
        made = ["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"]
        subprocess.run(made, capture_output=True, check=True, timeout=60)
        for node in nodes:
            node.until("cluster_state:ok", "cluster", "info")
        yield nodes[0]
    finally:
        for node in nodes:
            node.kill()
