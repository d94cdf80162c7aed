"""
The process that computes: ``python -m airflow_provider_llmbatch.engine.fusion.worker``.

It reads a spec, one line of JSON, from its standard input, and writes what happens as lines of JSON to its
standard output; the last one is ``done`` or ``failed``. When its input ends, whoever started it is gone, and
so it goes. What libraries print goes nowhere: it quotes what they read.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from typing import Any, BinaryIO

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion.launch import (
    EXIT_BAD_SPEC,
    EXIT_FAILED,
    EXIT_NO_MEMORY,
    EXIT_TOO_MANY_BAD,
)
from airflow_provider_llmbatch.errors import ConfigurationError, InputError, LLMBatchError, StoreError

_PACKAGE = "airflow_provider_llmbatch"


def main() -> int:
    """Do what the spec says; returns the exit status."""
    out = _take_output()

    def emit(event: Mapping[str, Any]) -> None:
        out.write(json.dumps(event).encode() + b"\n")
        out.flush()

    data = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    warnings.simplefilter("ignore")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # Threads that spin while they wait take the cores that decode.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    status, event = _done(data, emit)
    emit(event)
    return status


def _done(data: Mapping[str, Any], emit: Any) -> tuple[int, Mapping[str, Any]]:
    """Run, and return how it ended."""
    try:
        return 0, {"event": "done", "manifest": _run(data, emit)}
    except ConfigurationError as error:
        return EXIT_BAD_SPEC, _failed("configuration", str(error))
    except InputError as error:
        many = type(error).__name__ == "TooManyBadError"
        return EXIT_TOO_MANY_BAD if many else EXIT_BAD_SPEC, _failed("input", str(error))
    except StoreError as error:
        return EXIT_FAILED, _failed("store", str(error))
    except LLMBatchError as error:
        return EXIT_FAILED, _failed("unexpected", str(error))
    except MemoryError:
        return EXIT_NO_MEMORY, _failed("memory", "")
    except Exception as error:
        # The words of a foreign error can quote a file or a note; where it was raised cannot.
        memory = type(error).__name__ == "OutOfMemoryError"
        status = EXIT_NO_MEMORY if memory else EXIT_FAILED
        return status, _failed("memory" if memory else "unexpected", _where(error))


def _run(data: Mapping[str, Any], emit: Any) -> dict[str, Any]:
    from airflow_provider_llmbatch.engine.fusion.spec import read_spec

    spec = read_spec(data)
    try:
        from airflow_provider_llmbatch.engine.fusion.modes import run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(_PACKAGE):
            raise
        raise ConfigurationError(
            f"Fusion needs {error.name}, which is not installed where the task runs: install "
            "airflow-provider-llmbatch[fusion], and fusion-dicom, fusion-wsi, fusion-text for what you read."
        ) from error
    return run(spec, emit, Clocks())


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


def _leave_with_parent() -> None:
    # Not through the buffer: its lock would be held while the interpreter ends.
    while os.read(0, 1 << 16):
        pass
    os._exit(EXIT_FAILED)


if __name__ == "__main__":
    sys.exit(main())
