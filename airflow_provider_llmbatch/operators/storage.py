"""
Open folders and sources wherever they are.

A URL may name an Airflow connection, as Airflow's object storage writes it: ``s3://my_conn@bucket/path``.
Other URLs are opened with what the worker's environment says (fsspec).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.results.folder import Folder
    from airflow_provider_llmbatch.engine.source import Source


def filesystem_of(location: str) -> Any | None:
    """
    Return the file system that a URL's connection opens, None when it names no connection.

    :raises ConfigurationError: when there is no such connection, or nothing that opens such URLs with one.
    """
    from airflow_provider_llmbatch.engine.locations import connection_of

    name = connection_of(location)
    if name is None:
        return None
    from airflow.sdk import ObjectStoragePath
    from airflow.sdk.exceptions import AirflowException

    try:
        return ObjectStoragePath(location).fs
    except (AirflowException, ImportError, ValueError) as error:
        raise ConfigurationError(
            f"{location} cannot be opened with connection {name!r}: {error}. Make the connection, install "
            "the provider of this kind of storage (for s3:// apache-airflow-providers-amazon[s3fs]), or "
            "leave the connection out of the URL."
        ) from error


def open_folder(path: str, *, read_only: bool = False) -> Folder:
    """
    Open a result folder; see :func:`.engine.results.folder.open_folder`.

    :param read_only: for a look at what is there; nothing is made.
    """
    from airflow_provider_llmbatch.engine.results import folder

    return folder.open_folder(path, filesystem=filesystem_of(path), read_only=read_only)


def open_source(source: str | Sequence[Mapping[str, Any]]) -> Source:
    """
    Open a source; see :func:`.engine.source.open_source`.

    :param source: path, URL or rows.
    """
    from airflow_provider_llmbatch.engine import source as sources

    filesystem = filesystem_of(source) if isinstance(source, str) else None
    return sources.open_source(source, filesystem=filesystem)
