"""Credentials and endpoints from the command line: what is seen there is forgotten, routes are pinned."""

from __future__ import annotations

import pytest

from airflow_provider_llmbatch.operators.parked import parked
from airflow_provider_llmbatch.operators.routing import known
from tests.cli.test_commands import call
from tests.plugins.test_health_api import ENDPOINT, park
from tests.plugins.test_routing_api import OTHER, offer


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch) -> None:
    """Keep a state of its own for each test."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")


def test_what_was_seen_is_forgotten(capsys):
    park(ENDPOINT, "503")
    assert call("reset", "endpoint/nothing") == 1
    assert ENDPOINT.name in capsys.readouterr().err
    assert call("reset", ENDPOINT.name) == 0
    assert parked() == []


def test_a_route_is_pinned_and_unpinned(capsys):
    offer(OTHER)
    assert call("pin", ENDPOINT.name) == 1
    assert OTHER in capsys.readouterr().err
    assert call("pin", OTHER, "--by", "ann") == 0
    assert [(one.pin.gate, one.pin.by) for one in known() if one.pin] == [(OTHER, "ann")]
    assert call("unpin", OTHER) == 0
    assert call("unpin", OTHER) == 1
    assert not any(one.pin for one in known())
