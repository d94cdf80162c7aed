"""Airflow reads its home when it is first imported, so this sets one up before any test module is."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes depends on what else the machine does.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

AIRFLOW_HOME = Path(tempfile.mkdtemp(prefix="llmbatch-tests-"))
#: A folder that all processes of this run know: the home of the one that started the others.
MEETING_PLACE = Path(os.environ["AIRFLOW_HOME"]) if "PYTEST_XDIST_WORKER" in os.environ else AIRFLOW_HOME

for name in [n for n in os.environ if n.startswith(("AIRFLOW_CONN_", "AIRFLOW_VAR_", "AIRFLOW__"))]:
    del os.environ[name]
os.environ.update(
    AIRFLOW_HOME=str(AIRFLOW_HOME),
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__API_AUTH__JWT_SECRET="only-for-tests-" + "x" * 64,
    AIRFLOW__LOGGING__LOGGING_LEVEL="WARNING",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long, so that of two processes none has a long one left for the end."""
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run a test beside those of other processes, or where it is marked ``alone`` with none beside it."""
    alone = item.get_closest_marker("alone") is not None
    with ExitStack() as held:
        # Whoever waits to be alone holds the door meanwhile, so that no further test goes in before it.
        with _locked(MEETING_PLACE / "door", fcntl.LOCK_EX):
            held.enter_context(_locked(MEETING_PLACE / "room", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        return (yield)


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    """Hold a file's lock, which the system frees with the process."""
    with open(path, "a") as file:
        fcntl.flock(file, kind)
        yield


def pytest_unconfigure() -> None:
    """Remove the home of this session."""
    shutil.rmtree(AIRFLOW_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def airflow_home() -> Path:
    """Return the directory that Airflow takes for its home during this session."""
    return AIRFLOW_HOME


@pytest.fixture(scope="session")
def airflow_db(airflow_home: Path) -> Path:
    """Make Airflow's database, an SQLite file, and return its path."""
    from airflow.utils.db import initdb

    initdb()
    return airflow_home / "airflow.db"


@pytest.fixture(scope="session")
def api(airflow_db: Path) -> Iterator[Callable[..., Any]]:
    """
    Start Airflow's API application once, with the plugin in it as a deployment loads it.

    Returns ``ask(path, role=None, method="GET", content=None)``, which asks as a user of that role and gives
    back the response.
    """
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    from airflow.api_fastapi.app import cached_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    client = TestClient(cached_app(apps="core"), follow_redirects=False)
    # The first request builds the console; FastAPI catches warnings meanwhile, for all threads or none.
    client.get("/llmbatch/review")

    def ask(
        path: str, role: str | None = None, method: str = "GET", content: Any = None, **headers: str
    ) -> Any:
        if role:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="somebody", role=role))
            headers["Authorization"] = f"Bearer {token}"
        return client.request(method, path, headers=headers, json=content)

    yield ask
    client.close()
