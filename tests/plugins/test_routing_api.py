"""How credentials and endpoints fare, over HTTP, behind the permissions of connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.state.protocols import State
from airflow_provider_llmbatch.operators.bridge import Bridge
from airflow_provider_llmbatch.operators.surroundings import open_routing, open_state
from airflow_provider_llmbatch.settings import load_settings
from tests.plugins.test_health_api import CREDENTIAL, ENDPOINT, HERE, park

PATH = "/llmbatch/api/v1/routes"
OTHER = "endpoint/https://spare.example/v1/m-1"


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch) -> None:
    """Keep a state of its own for each test."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")


def in_state(do: Callable[[State], Awaitable[Any]]) -> None:
    """Do something as a worker does."""

    async def main() -> None:
        opened = open_state(load_settings())
        try:
            await do(opened)
        finally:
            await opened.close()

    Bridge[None]().run(main)


def offer(*gates: str) -> None:
    in_state(lambda opened: open_routing(opened).offer(gates))


def audited(database: Any, event: str) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(database)) as opened:
        query = "SELECT owner, extra FROM log WHERE event = ? ORDER BY id"
        return opened.execute(query, (event,)).fetchall()


def test_what_is_known_is_listed_and_reset(api, airflow_db):
    park(ENDPOINT, "503")
    in_state(lambda opened: opened.add_latencies({ENDPOINT.name: {20: 30}}, 60.0))
    offer(OTHER)
    parked, spare = api(PATH, "op").json()["routes"]
    assert (parked["gate"], parked["parked"]["reason"], parked["may_be_pinned"]) == (
        *(ENDPOINT.name, "503"),
        False,
    )
    assert parked["p95_ms"] > 0
    unknown = {"parked": None, "answered_at": None, "failed": 0, "p95_ms": None, "pin": None}
    assert spare == {"gate": OTHER, **unknown, "may_be_pinned": True}
    left = api(f"{PATH}/reset", "op", "POST", {"gate": ENDPOINT.name}, **HERE).json()["routes"]
    assert [route["gate"] for route in left] == [OTHER]
    owner, extra = audited(airflow_db, "llmbatch_reset")[-1]
    assert (owner, ENDPOINT.name in extra) == ("somebody", True)


def test_an_endpoint_is_pinned_with_who_and_when_until_it_is_unpinned(api, airflow_db):
    offer(ENDPOINT.name, OTHER)
    first, second = api(f"{PATH}/pin", "op", "POST", {"gate": OTHER}, **HERE).json()["routes"]
    assert (first["gate"], first["pin"]["by"], second["pin"]) == (OTHER, "somebody", None)
    assert first["pin"]["at"].endswith("Z")
    routes = api(f"{PATH}/unpin", "op", "POST", {"gate": OTHER}, **HERE).json()["routes"]
    assert [route["pin"] for route in routes] == [None, None]
    for event in ("llmbatch_pin", "llmbatch_unpin"):
        owner, extra = audited(airflow_db, event)[-1]
        assert (owner, OTHER in extra) == ("somebody", True)


@pytest.mark.parametrize(("role", "status"), [(None, 401), ("viewer", 403), ("user", 403)])
def test_who_may_not_change_connections_changes_no_route(api, role, status):
    offer(OTHER)
    park(CREDENTIAL, "401")
    assert api(PATH, role).status_code == status
    for what, gate in (("reset", CREDENTIAL.name), ("pin", OTHER), ("unpin", OTHER)):
        assert api(f"{PATH}/{what}", role, "POST", {"gate": gate}, **HERE).status_code == status
    elsewhere = {"origin": "http://elsewhere"}
    assert api(f"{PATH}/pin", "op", "POST", {"gate": OTHER}, **elsewhere).status_code == 403
    found = {route["gate"]: route for route in api(PATH, "op").json()["routes"]}
    assert found[CREDENTIAL.name]["parked"]["reason"] == "401"
    assert found[OTHER]["pin"] is None


@pytest.mark.parametrize(
    ("what", "words"),
    [("reset", "Nothing is known of"), ("pin", "can choose"), ("unpin", "Nobody has pinned")],
)
def test_what_nobody_knows_is_refused_with_what_there_is(api, what, words):
    offer(OTHER)
    answer = api(f"{PATH}/{what}", "op", "POST", {"gate": "endpoint/none"}, **HERE)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]
