"""The folders below a place: a run's results lie in one for each task and mapped instance."""

from __future__ import annotations

import contextlib
import functools
import os
import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.locations import is_local
from airflow_provider_llmbatch.engine.results.objects import locate
from airflow_provider_llmbatch.errors import StoreError


def folders_below(location: str, *, filesystem: Any | None = None) -> list[str]:
    """
    Return the folders at and below a path or URL that hold files, sorted; links are not followed.

    :param filesystem: fsspec file system of a URL; chosen from the URL when None.
    :raises StoreError: when it cannot be listed.
    """
    if is_local(location):
        return sorted(_local(location.rpartition("://")[2]))
    files, inside = locate(location, filesystem)
    inside = inside.rstrip("/")
    with _told(location):
        found = _none_if_absent(files, files.find, inside)
    parents = {posixpath.dirname(name).removeprefix(inside) for name in found}
    return sorted(location.rstrip("/") + parent for parent in parents)


def files_below(location: str, *, filesystem: Any | None = None) -> dict[str, dict[str, int]]:
    """
    Return the files at and below a path or URL: for each folder that holds any, their bytes by name.

    :param filesystem: fsspec file system of a URL; chosen from the URL when None.
    :raises StoreError: when it cannot be listed.
    """
    found: dict[str, dict[str, int]] = {}
    if is_local(location):
        for folder in _local(location.rpartition("://")[2]):
            with os.scandir(folder) as entries:
                found[folder] = {each.name: each.stat().st_size for each in entries if each.is_file()}
        return found
    files, inside = locate(location, filesystem)
    inside = inside.rstrip("/")
    with _told(location):
        listed = _none_if_absent(files, functools.partial(files.find, detail=True), inside)
    for name, about in dict(listed).items():
        folder = location.rstrip("/") + posixpath.dirname(name).removeprefix(inside)
        found.setdefault(folder, {})[posixpath.basename(name)] = int(about["size"] or 0)
    return found


def names_in(location: str, *, filesystem: Any | None = None) -> list[str]:
    """
    Return the names of the folders right in a path or URL, sorted.

    :param filesystem: fsspec file system of a URL; chosen from the URL when None.
    :raises StoreError: when it cannot be listed.
    """
    if is_local(location):
        path = Path(location.rpartition("://")[2])
        with _told(location):
            return sorted(each.name for each in path.iterdir() if each.is_dir()) if path.is_dir() else []
    files, inside = locate(location, filesystem)
    with _told(location):
        found = _none_if_absent(files, functools.partial(files.ls, detail=True), inside.rstrip("/"))
    return sorted(
        posixpath.basename(each["name"].rstrip("/")) for each in found if each["type"] == "directory"
    )


def _none_if_absent(files: Any, ask: Callable[[str], Any], inside: str) -> Any:
    try:
        files.invalidate_cache()
        return ask(inside)
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _told(location: str) -> Iterator[None]:
    """Turn whatever a store raises into one error: none of it may pass for an empty place."""
    try:
        yield
    except Exception as error:
        raise StoreError(
            f"{location} cannot be listed: {type(error).__name__}: {error}. Check that the store can be "
            "reached, and that its keys are allowed to list."
        ) from error


def remove_empty(location: str) -> None:
    """Remove the directories at and below a local path that hold nothing; other stores have none."""
    if is_local(location):
        for directory, _, _ in os.walk(location.rpartition("://")[2], topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()


def _local(path: str) -> list[str]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise StoreError(
                f"{error.filename} cannot be listed: {error.strerror}; run this as a user who may."
            ) from error

    return [directory for directory, _, names in os.walk(path, onerror=refuse) if names]
