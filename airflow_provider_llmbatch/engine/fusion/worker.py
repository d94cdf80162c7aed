"""
The process that computes: ``python -m airflow_provider_llmbatch.engine.fusion.worker``.

It reads a spec, one line of JSON, from its standard input, and writes what happens as lines of JSON to its
standard output; the last one is ``done`` or ``failed``. When its input ends, whoever started it is gone, and
so it goes. What libraries print goes nowhere: it quotes what they read. Where a spec asks for several
processes this one starts them, each as itself again, and relays what the first one says.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion.adviser import Ask, AskingError
from airflow_provider_llmbatch.engine.fusion.launch import (
    EXIT_BAD_SPEC,
    EXIT_FAILED,
    EXIT_NO_MEMORY,
    EXIT_TOO_MANY_BAD,
)
from airflow_provider_llmbatch.engine.fusion.ranks import Emit, lead
from airflow_provider_llmbatch.engine.fusion.spec import Spec, read_spec
from airflow_provider_llmbatch.errors import (
    ConfigurationError,
    InputError,
    LLMBatchError,
    StoppedError,
    StoreError,
)

_PACKAGE = "airflow_provider_llmbatch"
_MODULE = f"{_PACKAGE}.engine.fusion.worker"
#: Seconds that are waited for advice; whoever asks a model gives up before.
_ADVICE_S = 120.0
#: Errors whose words are ours, the exit status of each, and what it is called.
_KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (ConfigurationError, EXIT_BAD_SPEC, "configuration"),
    (StoreError, EXIT_FAILED, "store"),
    (StoppedError, EXIT_FAILED, "lost"),
    (LLMBatchError, EXIT_FAILED, "unexpected"),
)


def main() -> int:
    """Do what the spec says; returns the exit status."""
    out = _take_output()

    def emit(event: Mapping[str, Any]) -> None:
        out.write(json.dumps(event).encode() + b"\n")
        out.flush()

    data = json.loads(sys.stdin.buffer.readline())
    answers: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
    threading.Thread(target=_listen, args=(answers,), daemon=True).start()
    warnings.simplefilter("ignore")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Threads that spin while they wait take the cores that decode.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    status, event = _done(data, emit, answers)
    emit(event)
    return status


def _done(
    data: Mapping[str, Any], emit: Emit, answers: SimpleQueue[Mapping[str, Any]]
) -> tuple[int, Mapping[str, Any]]:
    """Run, and return how it ended."""
    try:
        asked = {name: value for name, value in data.items() if name != "rank"}
        spec = read_spec(asked)
        if spec.nproc > 1 and "rank" not in data:
            # So that told to end, this one ends the others and clears up first.
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(EXIT_FAILED))
            return lead([sys.executable, "-m", _MODULE], asked, spec.nproc, emit)
        return 0, {"event": "done", "manifest": _run(spec, data.get("rank"), emit, answers)}
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> tuple[int, Mapping[str, Any]]:
    """Return the exit status for an error, and what is said of it."""
    if isinstance(error, InputError):
        many = type(error).__name__ == "TooManyBadError"
        return EXIT_TOO_MANY_BAD if many else EXIT_BAD_SPEC, _failed("input", str(error))
    for kind, status, name in _KINDS:
        if isinstance(error, kind):
            return status, _failed(name, str(error))
    # The words of a foreign error can quote a file or a note; where it was raised cannot.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return EXIT_NO_MEMORY, _failed("memory", _where(error))
    return EXIT_FAILED, _failed("unexpected", _where(error))


def _run(
    spec: Spec,
    rank: Mapping[str, Any] | None,
    emit: Emit,
    answers: SimpleQueue[Mapping[str, Any]],
) -> dict[str, Any]:
    """
    Do what a spec says.

    :param rank: of one of several processes, how they meet.
    """
    try:
        from airflow_provider_llmbatch.engine.fusion.modes import run, run_together
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(_PACKAGE):
            raise
        raise ConfigurationError(
            f"Fusion needs {error.name}, which is not installed where the task runs: install "
            "airflow-provider-llmbatch[fusion], and fusion-dicom, fusion-wsi, fusion-text for what you read."
        ) from error
    if rank is not None:
        return run_together(spec, emit, Clocks(), **rank)
    return run(spec, emit, Clocks(), ask=_asking(emit, answers) if spec.plan_adviser else None)


def _asking(emit: Emit, answers: SimpleQueue[Mapping[str, Any]]) -> Ask:
    """Return what asks the task that started this for a plan."""

    def ask(question: Mapping[str, Any]) -> Any:
        emit({"event": "plan_wanted", "question": question})
        try:
            found = answers.get(timeout=_ADVICE_S)
        except Empty as error:
            raise AskingError("no answer in time") from error
        if "failed" in found:
            raise AskingError(str(found["failed"]))
        return found["answer"]

    return ask


def _failed(kind: str, words: str) -> dict[str, Any]:
    return {"event": "failed", "kind": kind, "words": words}


def _where(error: BaseException) -> str:
    """Return the type of an error, and where in this package it came up."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in frame.filename]
    places = [f"{frame.filename.rpartition(f'{_PACKAGE}/')[2]}:{frame.lineno}" for frame in frames[-3:]]
    return f"{type(error).__name__} at {', '.join(places)}"


def _take_output() -> BinaryIO:
    """Keep standard output for events; what anybody else prints goes nowhere."""
    kept = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return kept


def _listen(answers: SimpleQueue[Mapping[str, Any]]) -> None:
    """Take in answers; when the input ends, leave."""
    held = b""
    # Not through the buffer: its lock would be held while the interpreter ends.
    while found := os.read(0, 1 << 16):
        *lines, held = (held + found).split(b"\n")
        for line in lines:
            answers.put(json.loads(line))
    os._exit(EXIT_FAILED)


if __name__ == "__main__":
    sys.exit(main())
