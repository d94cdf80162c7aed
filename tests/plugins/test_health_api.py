"""What is parked, over HTTP, behind the permissions of connections."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from airflow_provider_llmbatch.engine.state.protocols import Gate
from airflow_provider_llmbatch.operators.bridge import Bridge
from airflow_provider_llmbatch.operators.parked import parked
from airflow_provider_llmbatch.operators.surroundings import open_state
from airflow_provider_llmbatch.settings import load_settings

PATH = "/llmbatch/api/v1/parked"
CREDENTIAL = Gate(name="credential/team", sticky=True)
ENDPOINT = Gate(name="endpoint/https://llm.example/v1/m-1")
HERE = {"origin": "http://testserver"}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch) -> None:
    """Keep a state of its own for each test."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")


def park(gate: Gate, reason: str) -> None:
    """Park as a worker does."""

    async def main() -> None:
        state = open_state(load_settings())
        try:
            await state.park(gate, reason)
        finally:
            await state.close()

    Bridge[None]().run(main)


def test_what_is_parked_is_listed_and_opened(api, airflow_db):
    park(ENDPOINT, "503")
    park(CREDENTIAL, "401 invalid_api_key")
    found = {each["gate"]: each for each in api(PATH, "op").json()["parked"]}
    assert found["credential/team"]["reason"] == "401 invalid_api_key"
    assert found["credential/team"]["until"] is None
    assert found[ENDPOINT.name]["until"] is not None
    left = api(f"{PATH}/open", "op", "POST", {"gate": "credential/team"}, **HERE).json()["parked"]
    assert [each["gate"] for each in left] == [ENDPOINT.name]
    assert [closed.gate for closed in parked()] == [ENDPOINT.name]
    with closing(sqlite3.connect(airflow_db)) as database:
        *_, entry = database.execute(
            "SELECT owner, extra FROM log WHERE event = 'llmbatch_unpark' ORDER BY id"
        )
    assert entry[0] == "somebody"
    assert "credential/team" in entry[1]


@pytest.mark.parametrize(("role", "status"), [(None, 401), ("viewer", 403), ("user", 403)])
def test_who_may_not_change_connections_opens_nothing(api, role, status):
    park(CREDENTIAL, "401")
    assert api(f"{PATH}/open", role, "POST", {"gate": "credential/team"}, **HERE).status_code == status
    assert api(PATH, role).status_code == status
    assert [closed.gate for closed in parked()] == ["credential/team"]


def test_another_site_opens_nothing(api):
    park(CREDENTIAL, "401")
    answer = api(f"{PATH}/open", "op", "POST", {"gate": "credential/team"}, origin="http://elsewhere")
    assert answer.status_code == 403
    assert [closed.gate for closed in parked()] == ["credential/team"]


def test_what_is_not_parked_is_not_opened(api):
    answer = api(f"{PATH}/open", "op", "POST", {"gate": "credential/none"}, **HERE)
    assert answer.status_code == 422
    assert "Nothing of the name 'credential/none' is parked" in answer.json()["detail"]
