"""The page of costs in a real browser."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.console.conftest import BELOW
from tests.plugins.test_costs_api import NOW, connection, spend  # noqa: F401

COSTS = "/llmbatch/costs"


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch) -> None:
    """Keep a state of its own for each test."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")


@pytest.fixture
def spent(state) -> None:
    """Have two DAGs spend some."""
    spend("billing", "r1", {"usd": "1.25"}, {"usd": "0.75", "days": 3, "served_model": "m-2"})
    spend("support", "r1", {"prompt": "answer@1", "days": 20, "usd": "6"}, {"usd": None, "days": 1})


def rows(page: Any, group: str) -> list[list[str]]:
    """Return name, money, share and calls of the lines of a table."""
    lines = page.get_by_role("region", name=f"By {group}").locator("tbody tr")
    cells = [
        [" ".join(cell.split()) for cell in line.locator("td").all_inner_texts()] for line in lines.all()
    ]
    return [[line[0], line[1], line[2], line[5]] for line in cells]


def test_money_is_shown_by_dag_model_and_prompt_and_filtered(visit, spent):
    page = visit(COSTS)
    page.get_by_role("img", name="Money by day: $8.00 in all").wait_for()
    assert page.locator("canvas").count() == 1
    assert page.get_by_text("at least $8.00", exact=True).count() == 1
    assert rows(page, "DAG") == [
        ["support", "at least $6.00", "75 %", "2"],
        ["billing", "$2.00", "25 %", "2"],
    ]
    assert rows(page, "Prompt version")[0][0] == "answer@1"
    assert page.get_by_text("1 call has no known price").count() == 1
    page.locator("#filter-dag_id").select_option("billing")
    page.get_by_role("img", name="Money by day: $2.00 in all").wait_for()
    assert rows(page, "Model") == [["m-1", "$1.25", "63 %", "1"], ["m-2", "$0.75", "38 %", "1"]]
    page.locator("#filter-measure").select_option("tokens")
    page.get_by_role("img", name="Tokens by day: 240 in all").wait_for()
    page.get_by_text("Days in figures").click()
    assert page.locator("details tbody tr").first.inner_text().split() == [f"{NOW:%Y-%m-%d}", "120"]
    # What was chosen is in the address: it outlives a reload, and can be sent to somebody.
    page.reload()
    page.get_by_role("img", name="Tokens by day: 240 in all").wait_for()
    page.locator("#filter-days").select_option("7")
    page.get_by_text("Costs of the last 7 days.").wait_for()
    page.locator("#filter-dag_id").select_option("support")
    page.locator("#filter-measure").select_option("usd")
    assert rows(page, "DAG") == [["support", "at least $0.00", "0 %", "1"]]
    assert not page.errors


def test_budgets_stand_beside_what_was_spent_for_those_who_may_read_connections(
    visit,
    spent,
    connection,  # noqa: F811
):
    page = visit(COSTS, "op")
    page.get_by_text("nothing that a worker has told of this month").wait_for()
    assert page.get_by_text("Budgets per run, of llm_team").count() == 1
    other = visit(COSTS, "viewer")
    other.get_by_text("Budgets are shown to those who may read connections.").wait_for()
    assert page.errors == other.errors == []


def test_nothing_spent_and_a_server_that_is_away_are_told(visit):
    page = visit(COSTS, "op")
    page.get_by_text("Nothing was spent in this time").wait_for()
    page.get_by_text("or the environment has a budget").wait_for()
    page.route("**/api/v1/costs*", lambda route: route.abort())
    page.locator("#filter-days").select_option("90")
    page.get_by_role("alert").wait_for()
    page.unroute("**/api/v1/costs*")
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("Nothing was spent in this time").wait_for()


def test_the_keyboard_alone_chooses_and_stays_where_it_is(visit, spent):
    page = visit(COSTS)
    page.locator("#filter-dag_id").focus()
    page.keyboard.press("b")
    page.get_by_role("img", name="Money by day: $2.00 in all").wait_for()
    assert page.evaluate("document.activeElement.id") == "filter-dag_id"
    assert not page.errors


def test_below_a_path_all_is_asked_for_below_it(visit, spent, monkeypatch, site):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", site + BELOW)
    page = visit(f"{BELOW}{COSTS}", "op")
    page.locator("canvas").wait_for()
    assert all(url.startswith(f"{site}{BELOW}/llmbatch/") for url in page.asked), json.dumps(page.asked)
    assert not page.errors
