"""Result folders of every kind, each empty."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.local import LocalFolder
from airflow_provider_llmbatch.engine.results.objects import ObjectFolder
from tests.services import s3_server
from tests.services.s3_server import Bucket


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """Start an S3 server for the session."""
    with s3_server.running() as bucket:
        yield bucket.url


@pytest.fixture
def bucket(s3_url: str) -> Bucket:
    """Return an empty bucket on a server without faults."""
    return s3_server.new_bucket(s3_url)


@pytest.fixture
def memory(tmp_path: Path) -> Callable[..., ObjectFolder]:
    """Return a function that opens one folder of an object store in memory, as often as it is called."""
    path = f"/{uuid.uuid4().hex}/results"

    def open_it(**options: Any) -> ObjectFolder:
        values = {"spool_root": tmp_path / "spool", "sleep": lambda _: None, **options}
        return ObjectFolder(f"memory:/{path}", fsspec.filesystem("memory"), path, **values)

    return open_it


@pytest.fixture(params=["local", "memory", "s3"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Folder]:
    """Return a function that opens one folder of each kind, as every new process does."""
    if request.param == "local":
        return lambda: LocalFolder(tmp_path / "results")
    if request.param == "memory":
        return request.getfixturevalue("memory")  # type: ignore[no-any-return]
    bucket: Bucket = request.getfixturevalue("bucket")
    return lambda: bucket.folder("results", spool_root=tmp_path / "spool")
