"""Processes of their own, so that a server, or one measurement, does not disturb the next."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Seconds that one measurement may take.
LIMIT_S = 400.0


def measured(module: str, *arguments: object, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Run a module of this package and return the JSON in the last line that it prints."""
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=limit_s, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


@contextmanager
def server(module: str, *arguments: object) -> Iterator[str]:
    """Start one of the package's simulators on a free port; yield its base URL."""
    name = f"airflow_provider_llmbatch.simulator{module}"
    command = [sys.executable, "-m", name, "--port", "0", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield line.rpartition(" ")[2].strip()
        finally:
            process.terminate()
