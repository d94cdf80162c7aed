"""From the button in Airflow's pages to a green run: some items fail, and people decide about them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.simulator.server import running
from airflow_provider_llmbatch.simulator.settings import SimulatorSettings
from tests.dags.installation import Installation, Run, installed, until
from tests.operators.stage import Service
from tests.services.webhooks import catching

pytestmark = pytest.mark.slow

DAG_FILE = Path(__file__).parents[2] / "dags" / "review_and_recover.py"
ITEMS, FAILED = 12, 6
#: Items that are refused, with words that only they hold; and one that is answered with half a JSON.
REFUSED = {
    "96aef99e": "play with my older sister",
    "95a1d008": "get one until I was 18",
    "94c4ea9f": "I played right tackle",
    "a0e24284": "couple of encouragement texts",
    "0004441d": "After high confusion",
}
HALF = ("2033596d", "appreciate my Dad really")
WELL = {"reply": {"content": '{"topic": "everyday life", "confidence": 0.8}'}}
#: The first people may do all there is; the others run DAGs, or decide about items, or look.
PEOPLE = {"root": "admin", "otto": "op", "ann": "user", "eve": "viewer"}
PATIENCE_MS = 60_000


@pytest.fixture
def service() -> Iterator[Service]:
    """Start a simulator that refuses some items and answers others with half a JSON."""
    with running(SimulatorSettings(rpm=10**6, tpm=10**9, latency_s=0.02)) as url:
        yield Service(url)


@pytest.fixture
def chat() -> Iterator[tuple[str, list[Any]]]:
    """Run what alerts are sent to."""
    with catching() as found:
        yield found


@pytest.fixture
def airflow(airflow_db, service, chat, tmp_path) -> Iterator[Installation]:
    """Start an Airflow with people in it."""
    connection = {"conn_type": "llmbatch", "host": service.url, "password": "sk-simulated-0123456789"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_LLMBATCH_DEFAULT", json.dumps(connection))
        told = {"conn_type": "generic", "password": chat[0]}
        patch.setenv("AIRFLOW_CONN_LLMBATCH_ALERTS", json.dumps(told))
        patch.delenv("AIRFLOW__LLMBATCH__RESULTS_PATH")
        home = tmp_path / "airflow"
        home.mkdir()
        with installed(home, airflow_db, DAG_FILE, PEOPLE) as started:
            yield started


@pytest.fixture
def sign_in(browser: Any, airflow: Installation) -> Iterator[Any]:
    """Return ``sign_in(name)``, which gives the page of somebody who has signed in."""
    contexts = []

    def _sign_in(name: str) -> Any:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, base_url=airflow.url)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto("/")
        page.get_by_label("Username").fill(name)
        page.locator("input[type=password]").fill(name)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("Dags", exact=True).first.wait_for()
        return page

    yield _sign_in
    for context in contexts:
        context.close()


def test_an_operator_starts_a_dag_a_reviewer_decides_and_the_bill_counts_it(airflow, service, chat, sign_in):
    service.play(
        *({"match": {"contains": words}, "reply": {"refusal": "No."}} for words in REFUSED.values()),
        {"match": {"contains": HALF[1]}, "reply": {"content": '{"topic": "fathers", "confid'}},
        WELL,
    )
    otto = sign_in("otto")
    otto.goto("/dags/review_and_recover")
    otto.get_by_role("button", name="Trigger").first.click()
    dialog = otto.get_by_role("dialog")
    dialog.get_by_label("Only the first N items").fill(str(ITEMS))
    look(otto, "trigger")
    dialog.get_by_role("button", name="Trigger", exact=True).click()
    run = Run(airflow, "review_and_recover", until(lambda: started(airflow), "the run")["dag_run_id"])

    until(lambda: chat[1], "the alert")
    told = chat[1][0]
    assert f"{FAILED} items of review_and_recover wait for a decision" in told["title"]
    assert "5 refused, 1 invalid_output" in told["message"]
    look(otto, "waiting", f"/dags/review_and_recover/runs/{run.run_id}")
    paid = len(service.arrivals())
    service.play(WELL)

    ann = sign_in("ann")
    ann.goto(re.search(r"http\S+", told["message"]).group())
    ann.get_by_text(f"0 of {FAILED} needed").wait_for()
    look(ann, "queue")
    ann.get_by_role("link", name=HALF[0], exact=True).click()
    ann.get_by_label("topic").fill("sports")
    ann.get_by_label("confidence").fill("0.9")
    ann.get_by_text("Valid: this can be saved.").wait_for()
    look(ann, "edit")
    ann.get_by_role("button", name="Save edit").click()
    ann.get_by_role("button", name="Back to the list").click()
    ann.get_by_text(f"1 of {FAILED} needed").wait_for()
    for name in list(REFUSED)[:2]:
        ann.get_by_label(f"Select {name}", exact=True).check()
    ann.get_by_role("button", name="Retry …").click()
    ann.locator("dialog").get_by_role("button", name="Retry").click()
    ann.get_by_text(f"3 of {FAILED} needed").wait_for()
    ann.get_by_label("Select all of this page").check()
    ann.get_by_role("button", name="Skip …").click()
    ann.locator("dialog").get_by_role("button", name="Skip").click()

    run.wait_for("report", "success", "failed", "upstream_failed")
    until(lambda: airflow.request("GET", run.path)["state"] == "success", "the green run")
    look(otto, "green", f"/dags/review_and_recover/runs/{run.run_id}")
    assert run.returned("review")["counts"] == {"ok": 8, "edited": 1, "skipped": 3}
    assert len(chat[1]) == 1
    assert len(service.arrivals()) == paid + 2
    look(otto, "report", f"/llmbatch/dags/review_and_recover/runs/{run.run_id}/tasks/report/report")
    page = otto.locator("body").inner_text()
    assert all(word in page for word in ("edited", "skipped"))


def started(airflow: Installation) -> Any:
    """Return the run that was started, if any was."""
    found = airflow.request("GET", "/api/v2/dags/review_and_recover/dagRuns")["dag_runs"]
    return found[0] if found else None


def look(page: Any, name: str, path: str | None = None) -> None:
    """Open a page, and keep a picture of what somebody sees in a folder for it, if one was named."""
    if path:
        page.goto(path)
        page.wait_for_load_state("networkidle")
    if os.environ.get("LLMBATCH_PICTURES"):
        page.screenshot(path=Path(os.environ["LLMBATCH_PICTURES"]) / f"story-{name}.png")
