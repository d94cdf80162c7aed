"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import resource
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any


def facts() -> dict[str, Any]:
    """Return machine, Python and library versions, and how busy the machine is."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in ("aiohttp", "httpx", "httpx-aiohttp", "tiktoken")},
        "load": [round(one, 2) for one in os.getloadavg()],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def peak_mb() -> float:
    """Return the most memory that this process has had resident, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def cpu_s() -> float:
    """Return the processor seconds that this process has used, its threads included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
