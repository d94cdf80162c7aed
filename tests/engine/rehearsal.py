"""Whole runs of the engine against a simulator: real sockets, real files, real time."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from airflow_provider_llmbatch.engine.connection import parse
from airflow_provider_llmbatch.engine.dispatch.policy import Policy
from airflow_provider_llmbatch.engine.items import Outcome, Result
from airflow_provider_llmbatch.engine.job import Job
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.prompt import inline_prompt
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.engine.run import run, whole
from airflow_provider_llmbatch.engine.source import open_source
from airflow_provider_llmbatch.engine.state.protocols import State
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.engine.validate.schema import output_schema
from airflow_provider_llmbatch.simulator.arrivals import Arrival, read_arrivals
from airflow_provider_llmbatch.simulator.scenario import check_scenario
from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings

MODEL = "gpt-4o-mini"
KEY = "sk-canary-0123456789abcdef"
#: A dollar a million tokens, so that micro-dollars are tokens.
A_DOLLAR_A_MILLION = {MODEL: {"input": "1", "output": "1"}}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Simulated:
    """A simulator that is running."""

    url: str

    def arrivals(self) -> list[Arrival]:
        return read_arrivals(self._control("arrivals"))

    def stats(self) -> dict[str, Any]:
        return self._control("stats")

    def play(self, *rules: Mapping[str, Any]) -> None:
        """Play other rules from now on."""
        self._control("scenario", {"rules": rules})

    def _control(self, name: str, content: Any = None) -> Any:
        address = f"{self.url.removesuffix('/v1')}/_sim/{name}"
        told = httpx.get(address) if content is None else httpx.post(address, json=content)
        return told.raise_for_status().json()


@contextmanager
def simulated(*rules: Mapping[str, Any], **settings: Any) -> Iterator[Simulated]:
    """Run a simulator in a thread, without latency unless told; ``rules`` are its scenario."""
    scenario = check_scenario({"rules": rules}, source="test")
    wide = {"latency_s": 0.0, "rpm": 10**6, "tpm": 10**9, "count_tokens": "o200k", "scenario": scenario}
    with running(SimulatorSettings(**{**wide, **settings})) as url:
        yield Simulated(url)


@contextmanager
def simulated_apart(*arguments: str) -> Iterator[Simulated]:
    """Run a simulator in a process of its own, so that arrivals are timed whatever this process does."""
    command = [sys.executable, "-m", "airflow_provider_llmbatch.simulator", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Simulated(process.stdout.readline().split()[-1])
        process.terminate()


class Recorder:
    """Keeps all events."""

    def __init__(self) -> None:
        self.seen: list[events.Event] = []

    def on(self, event: events.Event) -> None:
        self.seen.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]


def job(source: Sequence[Mapping[str, Any]] | str, url: str, folder: Path, **told: Any) -> Job:
    """
    Return a job.

    ``extra`` are fields of the connection, ``policy`` those of the policy, ``user`` and ``output_type`` what
    they are called; anything else is a field of the job.
    """
    policy = Policy(**{"max_attempts": 3, "fail_fast": 0, **told.pop("policy", {})})
    extra = {"arrival_slack": 0.2, **told.pop("extra", {})}
    schema = output_schema(told.pop("output_type", None))
    prompt = inline_prompt("Be brief.", told.pop("user", "Say something about {{ text }}."))
    usual = {"params": {"max_tokens": 300}, "max_failed": 1.0}
    return Job(
        source=open_source(source),
        prompt=prompt,
        connection=parse("llm", host=url, password=told.pop("key", KEY), extra=extra),
        model=told.pop("model", MODEL),
        schema=schema,
        result_path=str(folder / "results"),
        policy=policy,
        **{**usual, **told},
    )


def rows(count: int) -> list[dict[str, Any]]:
    """Return so many items with texts of their own."""
    return [{"id": f"i{n}", "vars": {"text": f"row {n:04d}"}} for n in range(count)]


@dataclass(frozen=True)
class Done:
    """A run that is over."""

    manifest: Manifest
    results: list[Result]
    events: Recorder
    notes: list[str] = field(default_factory=list)

    @property
    def outcomes(self) -> dict[Outcome, int]:
        return dict(self.manifest.counts)

    @property
    def kinds(self) -> Counter[str]:
        """How many items ended with which kind of error."""
        return Counter(result.error.kind for result in self.results if result.error is not None)


async def dispatched(work: Job, state: State | None = None) -> Done:
    """Dispatch a job as the operator does."""
    recorder, notes = Recorder(), []  # type: ignore[var-annotated]
    own = state or SqliteState(":memory:")
    try:
        manifest = await run(work, whole(work), state=own, observe=recorder, note=notes.append)
    finally:
        if state is None:
            await own.close()
    done = Done(manifest, list(results(open_folder(work.result_path))), recorder, notes)
    check(done)
    return done


def check(done: Done) -> None:
    """What holds after every run: each item has one outcome, and the counts add up."""
    assert sum(done.manifest.counts.values()) == done.manifest.items
    assert [result.index for result in done.results] == list(range(done.manifest.items))
    assert Counter(result.outcome for result in done.results) == Counter(done.manifest.counts)
