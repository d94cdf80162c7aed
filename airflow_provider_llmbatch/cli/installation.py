"""Checks of this machine's installation: versions, workers, prompts, vocabularies."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import TYPE_CHECKING

from airflow_provider_llmbatch.cli.findings import Finding, of_error
from airflow_provider_llmbatch.errors import LLMBatchError
from airflow_provider_llmbatch.operators import surroundings

if TYPE_CHECKING:
    from airflow_provider_llmbatch.settings import Settings

PACKAGE = "airflow-provider-llmbatch"
#: Seconds for which workers may answer.
_ANSWER_S = 3.0
#: Tokens of a text in both vocabularies.
_TEXT, _TOKENS = "hello world", 2


def check_versions() -> Iterator[Finding]:
    """Look whether every library is there in a version that the package takes."""
    from packaging.requirements import Requirement

    found = [f"Python {platform.python_version()}", f"{PACKAGE} {metadata.version(PACKAGE)}"]
    unmet = []
    for requirement in map(Requirement, metadata.requires(PACKAGE) or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            version = ""
        if not requirement.specifier.contains(version or "0", prereleases=True) or not version:
            unmet.append((requirement, version))
        if requirement.name.startswith(("apache-airflow", "redis")):
            found.append(f"{requirement.name} {version}")
    yield Finding(level="ok", what="versions", found=", ".join(found))
    for requirement, version in unmet:
        yield Finding(
            level="fail",
            what="versions",
            found=f"{requirement.name} {version or 'is missing'}",
            remedy=f"install {requirement.name}{requirement.specifier}",
        )


def check_queues(settings: Settings) -> Iterator[Finding]:
    """Look whether each queue has a worker, as far as the executor can be asked."""
    executors = list(surroundings.executors())
    remote = [name for name in executors if name not in surroundings.LOCAL]
    if not remote:
        yield Finding(
            level="ok", what="queues", found=f"{', '.join(executors)} runs the tasks of every queue"
        )
    for name in remote:
        if name == "CeleryExecutor":
            yield from _celery(settings)
        else:
            yield Finding(
                level="unknown",
                what="queues",
                found=f"{name} cannot be asked which queues have workers",
                remedy="see that io_queue, cpu_queue and gpu_queue of [llmbatch] name queues that are served",
            )


def _celery(settings: Settings) -> Iterator[Finding]:
    from airflow.sdk import conf

    pool = conf.get("celery", "pool", fallback="prefork")
    if pool != "prefork":
        yield Finding(
            level="fail",
            what="worker pool",
            found=f"[celery] pool is {pool}, in which calls stand still",
            remedy="set it to prefork, at least for the workers of io_queue",
        )
    try:
        served = _served()
    # broker and transport raise errors of their own making
    except Exception as error:
        yield Finding(
            level="fail",
            what="queues",
            found=f"Celery's broker cannot be asked: {type(error).__name__}",
            remedy="start it, or correct [celery] broker_url",
        )
        return
    asked = {
        "io_queue": settings.io_queue,
        "cpu_queue": settings.cpu_queue,
        "gpu_queue": settings.gpu_queue,
        "default_queue": conf.get("operators", "default_queue"),
    }
    yield from queues_with_workers(asked, served)


def queues_with_workers(asked: Mapping[str, str | None], served: Mapping[str, set[str]]) -> Iterator[Finding]:
    """
    Say which queues have workers.

    :param asked: the queue that an option names; None where it is not set.
    :param served: the queues of each worker that has answered.
    """
    for option, queue in asked.items():
        if queue is None:
            continue
        count = sum(queue in queues for queues in served.values())
        yield Finding(
            level="ok" if count else "fail",
            what="queues",
            found=f"{option} is {queue!r}, served by {count} of {len(served)} workers",
            remedy="" if count else f"start a worker: airflow celery worker --queues {queue}",
        )


def _served() -> dict[str, set[str]]:
    """Return the queues of every Celery worker that answers."""
    from importlib import import_module

    app = import_module("airflow.providers.celery.executors.celery_executor").app
    answers = app.control.inspect(timeout=_ANSWER_S).active_queues() or {}
    return {worker: {queue["name"] for queue in queues} for worker, queues in answers.items()}


def check_prompts(settings: Settings) -> Iterator[Finding]:
    """Look whether every prompt under ``prompts_path`` can be read."""
    from airflow_provider_llmbatch.engine.prompt import load_prompt
    from airflow_provider_llmbatch.engine.prompt.load import versions_of

    what, path = "prompts", settings.prompts_path
    if path is None:
        yield Finding(level="ok", what=what, found="prompts_path is not set: prompts lie beside DAG files")
        return
    if not path.is_dir():
        yield Finding(
            level="fail",
            what=what,
            found=f"prompts_path {path} is no directory here",
            remedy="mount it on every worker, or correct [llmbatch] prompts_path",
        )
        return
    count = 0
    for folder in sorted(folder for folder in path.iterdir() if folder.is_dir()):
        for version in versions_of(folder.name, [path]):
            try:
                load_prompt(f"{folder.name}@{version}", [path])
                count += 1
            except LLMBatchError as error:
                yield of_error(what, error)
    yield Finding(
        level="ok" if count else "warn",
        what=what,
        found=f"{count} versions of prompts can be read in {path}",
        remedy="" if count else "write <name>/<version>.yaml there, or leave prompts_path out",
    )


def check_prices(settings: Settings) -> Iterator[Finding]:
    """Look whether the own table of prices can be read."""
    from airflow_provider_llmbatch.engine.tokens.price import PriceTable, read_prices

    if settings.prices_path is None:
        return
    try:
        own = read_prices(settings.prices_path)
        PriceTable(own, now=time.time)
    except LLMBatchError as error:
        yield of_error("prices", error)
        return
    yield Finding(level="ok", what="prices", found=f"{settings.prices_path} has {len(own)} models")


def check_vocabularies() -> Iterator[Finding]:
    """Look whether the vocabularies in the package are whole."""
    from airflow_provider_llmbatch.engine.tokens.count import TokenCounter
    from airflow_provider_llmbatch.engine.tokens.encodings import PATTERNS

    for name in PATTERNS:
        try:
            whole = TokenCounter(name).count(_TEXT) == _TOKENS
        # what a torn file raises depends on where it is torn
        except Exception:
            whole = False
        yield Finding(
            level="ok" if whole else "fail",
            what="vocabulary",
            found=f"{name} {'counts' if whole else 'cannot be read'}",
            remedy="" if whole else f"install {PACKAGE} anew",
        )
