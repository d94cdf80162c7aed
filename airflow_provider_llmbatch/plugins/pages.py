"""The pages of the console, read from where the tasks wrote them."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from airflow_provider_llmbatch.settings import load_settings

#: What a task leaves beside its results for the console.
REPORT_FILE = "report.html"

_MISSING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>No report</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }}
</style>
<h1>No report yet</h1>
<p>Task <b>{task}</b> of DAG <b>{dag}</b>, run <b>{run}</b>{index}, has not written one.</p>
<p>A report is written when a dispatch or report task ends. If this one has ended, look whether its
<code>result_path</code> lies below <code>[llmbatch] results_path</code>, and whether this API server reaches
that place.</p>
</html>
"""


def report_page(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str | None:
    """
    Return the HTML report of a task instance, or None when there is none.

    :param map_index: which of the mapped instances; -1 for a task that is not mapped.
    """
    from fsspec.core import url_to_fs

    location = report_location(load_settings().results_path, dag_id, run_id, task_id, map_index)
    filesystem, path = url_to_fs(location)
    try:
        content: bytes = filesystem.cat_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return content.decode()


def missing_page(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """Return the page that stands in for a report nobody wrote."""
    index = f", map index <b>{map_index}</b>" if map_index >= 0 else ""
    return _MISSING.format(task=escape(task_id), dag=escape(dag_id), run=escape(run_id), index=index)


def report_location(results_path: str, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """Return where the report of a task instance lies; no name can lead out of ``results_path``."""
    parts = [dag_id, run_id, task_id]
    if map_index >= 0:
        parts.append(str(map_index))
    return "/".join((results_path, *map(_component, parts), REPORT_FILE))


def _component(name: str) -> str:
    quoted = quote(name, safe="")
    # Quoting leaves dots alone, and ".." would climb.
    return quoted.replace(".", "%2E") if set(quoted) <= {"."} else quoted
