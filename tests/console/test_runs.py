"""The page of runs in a real browser."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_llmbatch.operators.stopping import stop_of
from tests.plugins.test_progress_api import RUN, say


@pytest.fixture
def known(airflow_db: Any) -> Any:
    """Have Airflow know the run."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    now = datetime.now(UTC)
    with create_session() as session:
        session.merge(DagBundleModel(name="tests"))
        session.flush()
        session.merge(DagModel(dag_id=RUN[0], bundle_name="tests", fileloc="/tests"))
        session.flush()
        found = DagRun(dag_id=RUN[0], run_id=RUN[1], run_type="manual", state="running", run_after=now)
        session.add(found)
    yield
    with create_session() as session:
        session.query(DagRun).delete()
        session.query(DagModel).delete()


def test_a_run_shows_how_far_it_is_and_is_stopped_and_goes_on(visit, run):
    page = visit(f"/llmbatch/dags/{RUN[0]}/runs/{RUN[1]}/progress")
    page.get_by_text("60 of 100 items").wait_for()
    words = page.locator("main").inner_text()
    for told in ("20 s, at 2 items/s", "ok 50, from earlier tries 10", "$0.50 of $2.00 budget"):
        assert told in words
    assert words.count("tokens per minute of account team, models m") == 2
    assert "97 %" in words
    page.get_by_role("button", name="Stop …").click()
    page.get_by_label("Why").fill("wrong prompt")
    page.locator("dialog").get_by_role("button", name="Stop", exact=True).click()
    page.get_by_text("Stopped by ann: wrong prompt").wait_for()
    assert stop_of(*RUN).why == "wrong prompt"
    page.get_by_role("button", name="Lift the stop").click()
    page.get_by_role("button", name="Stop …").wait_for()
    assert stop_of(*RUN) is None
    say("dispatch", -1, 100, 100, state="complete", waits_for="")
    page.get_by_text("100 of 100 items").wait_for()
    assert not page.errors


def test_runs_are_listed(visit, run, known):
    page = visit("/llmbatch/runs")
    page.get_by_role("link", name=f"{RUN[0]} · {RUN[1]}").click()
    page.get_by_text("60 of 100 items").wait_for()
    assert not page.errors


def test_a_reader_who_stops_a_run_is_told_that_he_may_not(visit, run):
    page = visit(f"/llmbatch/dags/{RUN[0]}/runs/{RUN[1]}/progress", "viewer")
    page.get_by_role("button", name="Stop …").click()
    page.locator("dialog").get_by_role("button", name="Stop", exact=True).click()
    page.locator(".notice", has_text="orbidden").wait_for()
    assert stop_of(*RUN) is None


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/llmbatch/runs", "No run has sent anything yet"),
        ("/llmbatch/dags/d/runs/r/progress", "No task of this run has begun to send items"),
    ],
)
def test_a_page_without_anything_to_show_says_so(visit, path, words):
    visit(path).get_by_text(words).wait_for()
