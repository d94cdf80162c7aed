"""A browser, and Airflow's API server in front of it, as a person has them."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.review.inbox import Inbox, Post
from airflow_provider_llmbatch.engine.review.queue import Queue
from airflow_provider_llmbatch.operators.places import (
    Note,
    inbox_folder,
    leave_note,
    review_folder,
    task_folder,
)
from tests.engine.review.queues import NOW, failed, opened
from tests.plugins.test_progress_api import RUN, say

#: Milliseconds that anything may take to appear; a machine that does much else is slow.
PATIENCE_MS = 15_000
WHO = ("billing", "manual__2026-11-29T12:00:00+00:00", "review")
REVIEW = f"/llmbatch/dags/{WHO[0]}/runs/{WHO[1].replace('+', '%2B')}/tasks/{WHO[2]}/review"
#: A path that a proxy may put in front.
BELOW = "/team/airflow"


def _program() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("There is no Chromium on the PATH; install it: apt-get install chromium")
        pytest.skip("There is no Chromium on the PATH.")
    return found


@pytest.fixture(scope="module")
def site(api: Callable[..., Any]) -> Iterator[str]:
    """Serve Airflow's API application with the console in it, and return its address."""
    import uvicorn
    from airflow.api_fastapi.app import cached_app

    app = cached_app(apps="core")

    async def also_below(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path", "").startswith(BELOW):
            scope = {**scope, "root_path": BELOW}
        await app(scope, receive, send)

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(also_below, lifespan="off", log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return Chromium."""
    program = _program()
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        # Containers give no name spaces of their own, and little shared memory.
        found = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any, site: str) -> Iterator[Callable[..., Any]]:
    """Return ``visit(path, role, width, theme)``, which opens a page; its errors are in ``page.errors``."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    contexts = []

    def _visit(
        path: str, role: str | None = "user", width: int = 1280, theme: str = "light", name: str = "ann"
    ) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        if role:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=name, role=role))
            context.add_cookies([{"name": "_token", "value": token, "url": site}])
        page = context.new_page()
        page.errors, page.asked = [], []
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("console", lambda said: said.type == "error" and page.errors.append(said.text))
        page.on("request", lambda request: page.asked.append(request.url))
        context.site = site
        page.goto(path if path == "about:blank" else site + path)
        return page

    yield _visit
    for context in contexts:
        context.close()


@pytest.fixture(autouse=True)
def results_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return where results lie, each time somewhere else."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", str(tmp_path / "results"))
    return str(tmp_path / "results")


@pytest.fixture
def open_queue(results_path: str) -> Callable[..., Queue]:
    """Return a function that opens a queue."""

    def _open(results: Any = None, who: tuple[str, ...] = WHO, **terms: Any) -> Queue:
        rows = [failed(n) for n in range(4)] if results is None else results
        queue = opened(review_folder(results_path, *who), rows, **terms)
        post = Post(dag_id=who[0], run_id=who[1], task_id=who[2], map_index=-1, opened_at=NOW)
        Inbox(open_folder(inbox_folder(results_path))).put(post, "open")
        return queue

    return _open


@pytest.fixture
def run(results_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a task of a run say how far it is."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")
    folder = open_folder(task_folder(results_path, *RUN, "dispatch"))
    leave_note(folder, Note(result_path=folder.uri, budget_usd="2"))
    say("dispatch", -1, 60, 100, waits_for="team/m/tokens_per_minute", use={"team/m/tokens_per_minute": 0.97})
