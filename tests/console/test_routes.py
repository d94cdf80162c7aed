"""The page of routes in a real browser."""

from __future__ import annotations

import pytest

from airflow_provider_llmbatch.operators.parked import parked
from airflow_provider_llmbatch.operators.routing import known
from tests.plugins.test_health_api import CREDENTIAL, ENDPOINT, park
from tests.plugins.test_routing_api import OTHER, offer


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch) -> None:
    """Keep a state of its own for each test."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")


def test_what_is_parked_is_shown_and_opened(visit):
    park(CREDENTIAL, "401 invalid_api_key")
    park(ENDPOINT, "503")
    page = visit("/llmbatch/routes", "op")
    page.get_by_text("401 invalid_api_key").wait_for()
    page.get_by_text("when a person opens it").wait_for()
    page.get_by_role("button", name="Open credential/team").click()
    page.get_by_text("Calls go through credential/team again").wait_for()
    assert [closed.gate for closed in parked()] == [ENDPOINT.name]
    page.get_by_role("button", name=f"Open {ENDPOINT.name}").click()
    page.get_by_text("No credential and no endpoint is parked.").wait_for()
    assert not page.errors


def test_a_route_is_pinned_unpinned_and_reset_by_keyboard_alone(visit):
    offer(ENDPOINT.name, OTHER)
    park(ENDPOINT, "503")
    page = visit("/llmbatch/routes", "op")
    page.get_by_role("button", name=f"Pin {OTHER}", exact=True).focus()
    page.keyboard.press("Enter")
    page.locator("dialog[open]").wait_for()
    page.keyboard.press("Enter")
    page.get_by_text("pinned by ann").wait_for()
    assert [(one.condition.gate, one.pin.by) for one in known() if one.pin] == [(OTHER, "ann")]
    page.locator(f"button:focus[aria-label='Unpin {OTHER}']").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("button", name=f"Pin {OTHER}", exact=True).wait_for()
    assert not any(one.pin for one in known())
    page.get_by_text("1 of 2 parked.").wait_for()
    page.get_by_role("button", name=f"Reset {ENDPOINT.name}", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_text("No credential and no endpoint is parked.").wait_for()
    assert parked() == []
    assert not page.errors


def test_who_may_not_see_connections_is_told_so(visit):
    page = visit("/llmbatch/routes", "viewer")
    page.get_by_role("alert").wait_for()
    assert "orbidden" in page.get_by_role("alert").inner_text()
