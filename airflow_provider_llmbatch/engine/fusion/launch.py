"""
Starts the worker, a fresh process in a session of its own, and relays what it says.

A task process is a fork: torch hangs in it when its parent has used threads, and refuses a GPU there. So a
new interpreter is executed, and this module never imports torch. Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_llmbatch.errors import (
    ConfigurationError,
    InputError,
    LLMBatchError,
    StoppedError,
    StoreError,
)

#: How a worker ends: too many bad records, a spec that cannot be followed, no memory, anything else.
EXIT_TOO_MANY_BAD, EXIT_BAD_SPEC, EXIT_NO_MEMORY, EXIT_FAILED = 10, 11, 12, 13
#: Seconds between asking the worker to end and ending it; Airflow gives a killed task five in all.
GRACE_S = 3.0

_MODULE = "airflow_provider_llmbatch.engine.fusion.worker"


class Worker:
    """
    A worker process.

    :param spec: what :class:`.spec.Spec` says, as JSON values.
    :param environment: added to that of this process.
    :param advise: answers a question about plans, which comes where the spec sets ``plan_adviser``; JSON
        values.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
        *,
        advise: Callable[[Mapping[str, Any]], Any] | None = None,
    ) -> None:
        self._spec, self._advise = spec, advise
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = threading.Event()

    @property
    def pid(self) -> int | None:
        """Its process, which leads a group of its own; None before it has started."""
        return None if self._process is None else self._process.pid

    def run(self, tell: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
        """
        Run to the end, and return the manifest; whatever ends this ends the worker first.

        :param tell: takes each event.
        :raises ConfigurationError: for a spec that cannot be followed.
        :raises InputError: for a source that cannot be read, or too many bad records.
        :raises StoppedError: when it was killed, or ran out of memory.
        :raises LLMBatchError: for anything else.
        """
        if self._killed.is_set():
            raise _told_to_end()
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            start_new_session=True,
        )
        last: Mapping[str, Any] = {}
        try:
            self._say(self._spec)
            for line in self._process.stdout or ():
                last = json.loads(line)
                if last["event"] == "plan_wanted":
                    self._say(self._answer(last["question"]))
                elif last["event"] not in ("done", "failed"):
                    tell(last)
            status = self._process.wait()
        finally:
            self._end()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
        if self._killed.is_set():
            raise _told_to_end()
        return _ended(last, status)

    def kill(self) -> None:
        """End the worker and all it has started, within :data:`GRACE_S`; any thread may, or a handler."""
        self._killed.set()
        self._end()

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the adviser says, or why it does not."""
        if self._advise is None:
            return {"failed": "nobody to ask"}
        try:
            return {"answer": self._advise(question)}
        except Exception as error:
            # The run goes on without advice, whatever the reason.
            return {"failed": type(error).__name__}

    def _say(self, value: Mapping[str, Any]) -> None:
        stdin = self._process.stdin if self._process else None
        assert stdin is not None
        try:
            stdin.write(json.dumps(value).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            return  # its exit status says why

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            _signal(process.pid, signal.SIGTERM)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                _signal(process.pid, signal.SIGKILL)
                process.wait()
        # Whatever it had started itself is in its group.
        _signal(process.pid, signal.SIGKILL)


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def _told_to_end() -> StoppedError:
    return StoppedError(
        "The task was told to end. Whole windows are stored; a retry, or clearing the task, goes on.",
        retryable=True,
    )


def _ended(last: Mapping[str, Any], status: int) -> dict[str, Any]:
    """Return the manifest, or raise what the worker's last words mean."""
    if last.get("event") == "done" and status == 0:
        manifest: dict[str, Any] = last["manifest"]
        return manifest
    kind, words = last.get("kind"), str(last.get("words", ""))
    if kind == "configuration":
        raise ConfigurationError(words)
    if kind == "input":
        raise InputError(words)
    if kind == "store":
        raise StoreError(words)
    if kind == "memory":
        raise StoppedError(
            f"Memory does not hold half a batch ({words}). Lower batch_size, or max_patches in the schema; "
            "whole windows are stored.",
            retryable=False,
        )
    if kind == "lost":
        raise StoppedError(words, retryable=True)
    if kind == "unexpected":
        raise LLMBatchError(f"The fusion worker failed: {words}.")
    raise StoppedError(
        f"The fusion worker ended without a word, status {status}"
        f"{' (killed, often for want of memory)' if status in (-9, 137) else ''}. Whole windows are stored; "
        "a retry goes on from there.",
        retryable=True,
    )
