"""
The processes of one run, started on this machine, all ended when one of them fails.

Each reads what it is asked, one line of JSON, from its standard input, and writes what happens as lines of
JSON to its standard output; the last one is ``done`` or ``failed``. They are in the group of the process that
starts them, and leave when their input ends, so none outlives it. Standard library only.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

#: Seconds that the others get to say why they end, once one has failed.
GRACE_S = 3.0

Emit = Callable[[Mapping[str, Any]], None]


@dataclass(slots=True)
class _Rank:
    """One of the processes."""

    process: subprocess.Popen[bytes]
    #: its last word, ``done`` or ``failed``
    last: Mapping[str, Any] = field(default_factory=dict)
    #: how it ended by itself; None: it has not
    status: int | None = None

    @property
    def failed(self) -> bool:
        """Whether it ended, and not well."""
        return self.status is not None and not (self.status == 0 and self.last.get("event") == "done")


def lead(
    command: Sequence[str],
    asked: Mapping[str, Any],
    count: int,
    emit: Emit,
    *,
    grace_s: float = GRACE_S,
    now: Callable[[], float] = time.monotonic,
) -> tuple[int, Mapping[str, Any]]:
    """
    Run processes to their end, and return how the run ended: an exit status, and the last word.

    The word is that of the first process when all are done, else of the one that failed first of itself.

    :param command: what each executes.
    :param asked: of each, with its ``rank``: ``rank``, ``size`` and ``meeting``, the file by which they meet.
    :param count: how many.
    :param emit: takes what else the first process says.
    :param grace_s: seconds that the others have to end by themselves, once one has failed.
    """
    with tempfile.TemporaryDirectory(prefix="llmbatch-ranks-") as folder, ExitStack() as stack:
        said: SimpleQueue[tuple[int, Mapping[str, Any] | None]] = SimpleQueue()
        ranks: list[_Rank] = []
        for rank in range(count):
            mine = {"rank": rank, "size": count, "meeting": str(Path(folder) / "meeting")}
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            stack.callback(_end, process)
            ranks.append(_Rank(process))
            threading.Thread(target=_listen, args=(rank, process, said), daemon=True).start()
            _ask(process, {**asked, "rank": mine})
        _relay(ranks, said, emit, grace_s, now)
        return _outcome(ranks)


def _ask(process: subprocess.Popen[bytes], asked: Mapping[str, Any]) -> None:
    """Say what is asked; the input stays open, for its end is the sign to leave."""
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        return  # its status says why


def _listen(rank: int, process: subprocess.Popen[bytes], said: SimpleQueue[Any]) -> None:
    for line in process.stdout or ():
        said.put((rank, json.loads(line)))
    said.put((rank, None))


def _relay(
    ranks: Sequence[_Rank],
    said: SimpleQueue[tuple[int, Mapping[str, Any] | None]],
    emit: Emit,
    grace_s: float,
    now: Callable[[], float],
) -> None:
    """Take in what processes say, until all have ended, or those that are left had their time."""
    give_up: float | None = None
    while any(rank.status is None for rank in ranks):
        try:
            number, event = said.get(timeout=None if give_up is None else max(0.0, give_up - now()))
        except Empty:
            return
        rank = ranks[number]
        if event is None:
            rank.status = rank.process.wait()
            if rank.failed and give_up is None:
                give_up = now() + grace_s
        elif event["event"] in ("done", "failed"):
            rank.last = event
        elif number == 0:
            emit(event)


def _outcome(ranks: Sequence[_Rank]) -> tuple[int, Mapping[str, Any]]:
    """
    Return how the run ended.

    A process that was killed makes the others lose it, and one that fails with words likewise: so what is
    told is first a death, then a failure of another kind than a loss, then a loss.
    """
    failed = [(number, rank) for number, rank in enumerate(ranks) if rank.failed]
    if not failed:
        return 0, ranks[0].last
    for number, rank in failed:
        if rank.last.get("event") != "failed":
            killed = " (killed, often for want of memory)" if rank.status in (-9, 137) else ""
            words = (
                f"Process {number} of {len(ranks)} ended without a word, status {rank.status}{killed}, and "
                "the others were ended. What is stored is kept; a retry goes on from there."
            )
            return rank.status or 1, {"event": "failed", "kind": "lost", "words": words}
    _, first = next((each for each in failed if each[1].last.get("kind") != "lost"), failed[0])
    return first.status or 1, first.last


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                continue
