"""
Names of the files in a result folder.

``part-<chunk>-<fence>-<n>.jsonl`` rows · ``ledger-<chunk>-<fence>-<n>.jsonl`` settled calls ·
``chunk-<chunk>.json`` what the chunk's results answer · ``manifest-<chunk>.json`` its account, once it has
ended · ``bill-<chunk>.json`` what its ledgers add up to. Fence 0 is a compacted part; its ``n`` is the fence
of the try that put it together. Files that begin with a dot are not finished.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_NAME = re.compile(r"(part|ledger)-(\d+)-(\d+)-(\d+)\.jsonl")
_CHUNK = re.compile(r"chunk-(\d+)\.json")

#: The fence of parts that were put together from others.
COMPACTED = 0


@dataclass(frozen=True, order=True, slots=True)
class PartName:
    """A part or ledger file; sorted by who comes first when two rows speak of one item."""

    chunk: int
    fence: int
    n: int
    kind: Literal["part", "ledger"] = "part"

    def __str__(self) -> str:
        """Return the file name."""
        return f"{self.kind}-{self.chunk:05d}-{self.fence}-{self.n}.jsonl"


def parse(name: str) -> PartName | None:
    """Read a file name; None for files that are neither part nor ledger."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    kind: Literal["part", "ledger"] = "part" if match[1] == "part" else "ledger"
    return PartName(int(match[2]), int(match[3]), int(match[4]), kind)


def chunk_file(chunk: int) -> str:
    """Return the name of the file that says what a chunk's results answer."""
    return f"chunk-{chunk:05d}.json"


def chunk_of(name: str) -> int | None:
    """Return the chunk number of a :func:`chunk_file`, None for other files."""
    match = _CHUNK.fullmatch(name)
    return int(match[1]) if match else None


def is_draft_of(name: str, chunk: int) -> bool:
    """Whether a file is what a kill has left of writing a whole file of a chunk."""
    return name.startswith((f".part-{chunk:05d}-", f".chunk-{chunk:05d}.")) and name.endswith(".draft")


def manifest_file(chunk: int) -> str:
    """Return the name of the file that holds a chunk's manifest."""
    return f"manifest-{chunk:05d}.json"


def bill_file(chunk: int) -> str:
    """Return the name of the file that holds what a chunk's ledgers add up to."""
    return f"bill-{chunk:05d}.json"
