"""The pages of the console, read from where the tasks wrote them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from starlette.status import HTTP_200_OK, HTTP_404_NOT_FOUND, HTTP_500_INTERNAL_SERVER_ERROR

from airflow_provider_llmbatch.errors import InputError, LLMBatchError
from airflow_provider_llmbatch.operators.batch import read_plan
from airflow_provider_llmbatch.operators.places import REPORT_FILE, Note, read_note, task_folder
from airflow_provider_llmbatch.settings import load_settings

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.results.folder import Folder
    from airflow_provider_llmbatch.engine.summary import Manifest, Plan

#: DAG, run and task.
Who = tuple[str, str, str]

#: Seconds after which a page of a running task is asked for again, at the least.
REFRESH_S = 10
#: A page that takes long to make is asked for this many times less often than it could be made.
REST = 20

_RUNNING = (
    "Still running, as of {moment}. If Airflow shows the task as failed, it was killed: what it had stored "
    "is kept, and clearing the task goes on from there."
)
_MESSAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }}
b, code {{ overflow-wrap: anywhere }}
</style>
<h1>{title}</h1>
<p>Task <b>{task}</b> of DAG <b>{dag}</b>, run <b>{run}</b>{index}, {words}</p>
</html>
"""
_NOT_BEGUN = (
    "has not begun, or keeps its files where this API server does not find them. A dispatch task shows up "
    "here when it starts, a report task when it ends. If this one has, look whether the API server reaches "
    "<code>[llmbatch] results_path</code> of the workers, <code>{place}</code>."
)
_NOTHING_YET = "has begun, and has stored nothing so far in <code>{place}</code>. This page looks again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What the console answers."""

    html: str
    status: int = HTTP_200_OK
    #: seconds after which there may be more; None when the page is final
    refresh_s: int | None = None


def report_page(
    dag_id: str,
    run_id: str,
    task_id: str,
    map_index: int = -1,
    *,
    clock: Callable[[], float] = time.time,
) -> Page:
    """
    Return the report of a task instance: the one it wrote, or one of what it has stored so far.

    :param map_index: which of the mapped instances; when they share a folder, all of them are shown.
    :param clock: Unix seconds.
    """
    who = (dag_id, run_id, task_id)
    results_path = load_settings().results_path
    try:
        for index in dict.fromkeys((map_index, -1)):
            folder = task_folder(results_path, *who, index)
            if (found := _found(folder, who, map_index, clock)) is not None:
                return found
    except LLMBatchError as error:
        words = f"has results that cannot be shown: {escape(str(error))}"
        return _message("No report", words, who, map_index, status=HTTP_500_INTERNAL_SERVER_ERROR)
    return _message("No report yet", _NOT_BEGUN.format(place=escape(results_path)), who, map_index)


def _found(path: str, who: Who, map_index: int, clock: Callable[[], float]) -> Page | None:
    from airflow_provider_llmbatch.operators.storage import open_folder

    folder = open_folder(path, read_only=True)
    if (written := _read(folder, REPORT_FILE)) is not None:
        return Page(html=written)
    if (note := read_note(folder)) is None:
        return None
    nothing = _NOTHING_YET.format(place=escape(note.result_path))
    made = _made(note, title=" · ".join(who), clock=clock)
    return made or _message("Nothing stored yet", nothing, who, map_index)


def _read(folder: Folder, name: str) -> str | None:
    try:
        with folder.open(name) as file:
            return file.read().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _made(note: Note, *, title: str, clock: Callable[[], float]) -> Page | None:
    """Make a report of the manifests in a result folder; None when it holds none."""
    from airflow_provider_llmbatch.engine.manifests import manifests
    from airflow_provider_llmbatch.engine.report.html import to_html
    from airflow_provider_llmbatch.engine.report.merge import merge
    from airflow_provider_llmbatch.engine.report.numbers import moment
    from airflow_provider_llmbatch.operators.storage import open_folder

    began = clock()
    folder = open_folder(note.result_path, read_only=True)
    as_of = _RUNNING.format(moment=moment(began))
    plan = _plan(note)
    parts = [part for part in manifests(folder, as_of=as_of, now=began) if _is_of(part, plan)]
    if not parts:
        return None
    report = merge([*parts, *_not_begun(parts, plan, as_of)], plan=plan, title=title)
    rest = max(REFRESH_S, math.ceil(REST * (clock() - began)))
    return Page(html=to_html(report), refresh_s=rest if report.state == "running" else None)


def _is_of(part: Manifest, plan: Plan | None) -> bool:
    """Whether a manifest belongs to the plan, and not to one before it whose files are still there."""
    if plan is None:
        return True
    known = any(chunk.number == part.chunk for chunk in plan.chunks)
    return known and part.prompt in (None, plan.prompt)


def _not_begun(parts: Sequence[Manifest], plan: Plan | None, as_of: str) -> Iterator[Manifest]:
    """Yield manifests of the plan's chunks that have no results yet."""
    from airflow_provider_llmbatch.engine.items import Outcome
    from airflow_provider_llmbatch.engine.summary import Manifest

    begun = {part.chunk for part in parts}
    for chunk in plan.chunks if plan else ():
        if chunk.number not in begun:
            yield Manifest(
                result_path=parts[0].result_path,
                state="running",
                items=chunk.items,
                counts={Outcome.UNSENT: chunk.items},
                chunk=chunk.number,
                reason=as_of,
            )


def _plan(note: Note) -> Plan | None:
    """Return the plan that the results belong to, as long as it is still there."""
    if note.chunk is None:
        return None
    try:
        return read_plan(note.chunk)
    except InputError:
        return None


def _message(title: str, words: str, who: Who, map_index: int, *, status: int = HTTP_404_NOT_FOUND) -> Page:
    """Return a page of one sentence; ``words`` are HTML."""
    dag, run, task = map(escape, who)
    index = f", map index <b>{map_index}</b>" if map_index >= 0 else ""
    html = _MESSAGE.format(title=title, task=task, dag=dag, run=run, index=index, words=words)
    return Page(html=html, status=status, refresh_s=REFRESH_S)
