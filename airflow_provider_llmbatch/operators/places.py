"""
Where a task keeps its files, so that the console finds them again.

Each task instance has a folder below ``[llmbatch] results_path``, named after DAG, run, task and map index.
Unless the task names another place, its results lie there; in any case a :data:`NOTE_FILE` does, which says
where they are and which plan they belong to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_llmbatch.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.results.folder import Folder

#: What a report task leaves, and what a task that sends leaves when it starts.
REPORT_FILE = "report.html"
NOTE_FILE = "task.json"
#: Where a review task keeps its queue.
REVIEW_FOLDER = "review"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a task says about its files when it starts."""

    result_path: str
    #: the chunk descriptor that it was given; None without a plan
    chunk: Mapping[str, Any] | None = None
    #: US dollars that the chunks of the task may cost in this run, as decimal text; None without a budget
    budget_usd: str | None = None


def task_folder(results_path: str, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """
    Return the folder of a task instance; no name leads out of ``results_path``.

    :param map_index: which of the mapped instances; -1 for all of them together.
    """
    parts = [dag_id, run_id, task_id]
    if map_index >= 0:
        parts.append(str(map_index))
    return "/".join([results_path, *map(_component, parts)])


def run_folder(results_path: str, dag_id: str, run_id: str) -> str:
    """
    Return the folder of all tasks of a run.

    :raises ConfigurationError: when one of them is not named: that would be the folder of more than a run.
    """
    if not dag_id or not run_id:
        raise ConfigurationError("A run is named by its DAG and its run id; give both.")
    return "/".join([results_path, _component(dag_id), _component(run_id)])


def dag_folder(results_path: str, dag_id: str) -> str:
    """Return the folder of all runs of a DAG."""
    return f"{results_path}/{_component(dag_id)}"


def review_folder(results_path: str, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """Return the folder of a review task's queue."""
    return f"{task_folder(results_path, dag_id, run_id, task_id, map_index)}/{REVIEW_FOLDER}"


def inbox_folder(results_path: str) -> str:
    """Return the folder that says which queues there are; no DAG can be called like it."""
    return f"{results_path}/~queues"


def rollout_folder(results_path: str, *names: str) -> str:
    """
    Return the folder of a rollout's steps; no DAG can be called like its parent.

    :param names: the DAG and the rollout; of fewer, the folder that those of all others lie in.
    """
    return "/".join([results_path, "~rollouts", *map(_component, names)])


def leave_note(folder: Folder, note: Note) -> None:
    """Say where the results of a task are."""
    content = json.dumps(asdict(note), indent=1)
    folder.put(NOTE_FILE, iter([content.encode()]), replace=True)


def read_note(folder: Folder) -> Note | None:
    """
    Return what a task has left; None when it has not started.

    :raises StoreError: when that cannot be read.
    """
    try:
        with folder.open(NOTE_FILE) as file:
            content = file.read()
    except FileNotFoundError:
        return None
    try:
        note = json.loads(content)
        return Note(result_path=note["result_path"], chunk=note["chunk"], budget_usd=note.get("budget_usd"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{folder.uri}/{NOTE_FILE} cannot be read: {error!r}.") from error


def _component(name: str) -> str:
    """Return a name as one part of a path."""
    quoted = quote(name, safe="")
    # Quoting leaves dots alone, and ".." would climb.
    return quoted.replace(".", "%2E") if set(quoted) <= {"."} else quoted
