"""A batch that is killed again and again, and what the service has seen of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.manifests import manifests
from airflow_provider_llmbatch.engine.results import read
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.simulator.arrivals import Arrival, doubles, read_arrivals

ROOT = Path(__file__).parents[2]


@dataclass
class Driver:
    """The process that starts tries."""

    process: subprocess.Popen[str]

    def run(self, told: dict[str, str], wait: Callable[[], object] | None = None) -> int:
        """Start a try, kill it after ``wait`` unless it has ended, and return its exit status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        pid = int(self.process.stdout.readline())
        if wait is not None:
            wait()
            # Until the driver has read its exit status the number belongs to this try.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return int(self.process.stdout.readline())


@contextlib.contextmanager
def driver() -> Iterator[Driver]:
    """Start the process that starts tries."""
    command = [sys.executable, "-m", "tests.kill.driver"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield Driver(process)
        finally:
            process.kill()


@dataclass
class Batch:
    """
    One batch, its tries, and what came of them.

    :param service: base URL of the simulator.
    :param items: how many.
    :param told: what the driver is told.
    """

    service: str
    items: int
    told: dict[str, str]
    kills: int = 0
    #: calls that a kill found without a row
    open_at_kills: int = 0
    rows: list[bytes] = field(default_factory=list)

    def write_source(self, path: Path, name: str) -> None:
        """Write items that no other batch has, and forget what the service saw of others."""
        lines = (
            json.dumps({"id": f"{name}-{n}", "vars": {"text": f"{name} {n}"}}) for n in range(self.items)
        )
        path.write_text("\n".join(lines))
        self.told["source"] = str(path)
        self._control("reset", {})

    def arrivals(self) -> list[Arrival]:
        """Return the calls that the service has seen."""
        return read_arrivals(json.loads(self._control("arrivals")))

    def after(self, calls: int) -> Callable[[], None]:
        """Return what waits until the service has seen so many more calls."""
        wanted, give_up = len(self.arrivals()) + calls, time.monotonic() + 60

        def wait() -> None:
            while len(self.arrivals()) < wanted:
                assert time.monotonic() < give_up, "the calls never came"
                time.sleep(0.005)

        return wait

    def look(self, folder: Folder) -> None:
        """Check that no row that was there is gone or changed."""
        with contextlib.suppress(InputError):
            now = list(read.lines(folder))
            assert set(self.rows) <= set(now), "a finished row was lost"
            self.rows = now

    def was_killed(self, folder: Folder) -> int:
        """Take a kill in, and return how many calls were open."""
        self.look(folder)
        self.kills += 1
        found = len(self.arrivals()) - self.open_at_kills - len(self.rows)
        self.open_at_kills += found
        return found

    def check(self, folder: Folder) -> int:
        """Check a batch that has come to its end, and return how many questions were paid more than once."""
        self.look(folder)
        results = list(read.results(folder))
        assert [one.index for one in results] == list(range(self.items))
        assert {one.outcome for one in results} == {Outcome.OK}
        (manifest,) = manifests(folder, as_of="")
        assert manifest.state == "complete"
        assert manifest.counts == {Outcome.OK: self.items}
        arrivals = self.arrivals()
        again = sum(count - 1 for count in doubles(arrivals).values())
        assert len(Counter(arrival.sha for arrival in arrivals)) == self.items
        assert len(arrivals) == self.items + again
        assert again <= self.open_at_kills
        return again

    def possible_double_paid(self, folder: Folder) -> int:
        """Return what the account says."""
        (manifest,) = manifests(folder, as_of="")
        return manifest.possible_double_paid

    def _control(self, name: str, content: Any = None) -> bytes:
        url = f"{self.service.removesuffix('/v1')}/_sim/{name}"
        data = None if content is None else json.dumps(content).encode()
        with urlopen(Request(url, data=data), timeout=10) as response:
            body: bytes = response.read()
        return body
