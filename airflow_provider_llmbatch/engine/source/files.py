"""Find a source, choose its format, and say plainly what is wrong when it cannot be used."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from airflow_provider_llmbatch.engine.items import Json
from airflow_provider_llmbatch.engine.locations import bare
from airflow_provider_llmbatch.engine.source.csv import CsvSource
from airflow_provider_llmbatch.engine.source.jsonl import JsonlSource
from airflow_provider_llmbatch.engine.source.memory import MemorySource
from airflow_provider_llmbatch.engine.source.parquet import ParquetSource
from airflow_provider_llmbatch.engine.source.row import OpenFile, Source
from airflow_provider_llmbatch.errors import ConfigurationError, InputError, StoreError

_FORMATS: Mapping[str, Callable[[str, OpenFile], Source]] = {
    ".jsonl": JsonlSource,
    ".ndjson": JsonlSource,
    ".csv": CsvSource,
    ".parquet": ParquetSource,
}


def open_source(
    source: str | os.PathLike[str] | Sequence[Mapping[str, Json]], *, filesystem: Any | None = None
) -> Source:
    """
    Return the source behind a path, a URL or a list of rows; a file is looked up, but not read yet.

    :param source: local path, URL that fsspec knows (``s3://…``), or rows.
    :param filesystem: fsspec file system to use for it; chosen from the URL when None.
    :raises InputError: when it is missing, empty, a directory, not readable or of an unknown format.
    """
    if not isinstance(source, str | os.PathLike):
        return MemorySource(source)
    uri = os.fspath(source)
    with _looking_up(uri):
        files, path = _locate(uri, filesystem)
        info = files.info(path)
    if info["type"] == "directory":
        raise InputError(f"{uri} is a directory; name a file in it.")
    if info.get("size") == 0:
        raise InputError(f"{uri} is empty; was the task that writes it finished?")
    make = _FORMATS.get(PurePosixPath(uri).suffix.lower())
    if make is None:
        raise InputError(f"{uri} has no known extension; known are {', '.join(_FORMATS)}.")
    return make(uri, functools.partial(_open, uri, files, path))


def _locate(uri: str, filesystem: Any | None) -> tuple[Any, str]:
    if filesystem is not None:
        return filesystem, filesystem._strip_protocol(bare(uri))
    from fsspec.core import url_to_fs

    files, path = url_to_fs(uri)
    return files, path


def _open(uri: str, files: Any, path: str) -> Any:
    with _looking_up(uri):
        return files.open(path, "rb")


@contextmanager
def _looking_up(uri: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{uri} does not exist; check the path, and that this worker can see it.") from error
    except PermissionError as error:
        raise InputError(f"{uri} may not be read by this worker; grant it read access.") from error
    except (ImportError, ValueError) as error:
        raise ConfigurationError(
            f"{uri} cannot be opened: {error}. Install the driver of its file system, or correct the URL."
        ) from error
    # drivers raise errors of their own making; whatever it is, the source may still be there
    except Exception as error:
        raise StoreError(f"{uri} cannot be opened now: {type(error).__name__}: {error}.") from error
