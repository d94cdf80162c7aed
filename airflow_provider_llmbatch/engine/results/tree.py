"""The folders below a place: a run's results lie in one for each task and mapped instance."""

from __future__ import annotations

import contextlib
import os
import posixpath
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
    try:
        files.invalidate_cache()
        found = files.find(inside)
    except FileNotFoundError:
        return []
    # drivers raise errors of their own making; none of them may pass for an empty place
    except Exception as error:
        raise StoreError(
            f"{location} cannot be listed: {type(error).__name__}: {error}. Check that the store can be "
            "reached, and that its keys are allowed to list."
        ) from error
    parents = {posixpath.dirname(name).removeprefix(inside) for name in found}
    return sorted(location.rstrip("/") + parent for parent in parents)


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
