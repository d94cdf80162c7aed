"""What runs have cost, over HTTP: from bills and ledgers, bounded, behind the permissions of DAGs."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.connection import parse
from airflow_provider_llmbatch.engine.dispatch.limit.scope import scope
from airflow_provider_llmbatch.engine.items import Cost, PromptRef, Usage
from airflow_provider_llmbatch.engine.results.answers import Answers
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.store import ResultStore, open_store
from airflow_provider_llmbatch.engine.state.protocols import Need
from airflow_provider_llmbatch.operators.costs import Known, costs_of
from airflow_provider_llmbatch.operators.places import Note, leave_note, task_folder
from airflow_provider_llmbatch.settings import load_settings
from tests.plugins.test_routing_api import in_state

PATH = "/llmbatch/api/v1/costs"
PROMPT = PromptRef(name="ticket", version="3", sha="ab" * 32)
NOW = datetime.now(UTC)
CALL = {
    **{"credential": "k", "endpoint": "https://llm.example/v1", "model": "m-1", "prompt": "ticket@3"},
    "usage": Usage(prompt=100, cached=10, completion=20),
}
#: A machine that does much else is slow.
LENIENCE = 1 + (os.getloadavg()[0] > 1.5) * 3


@pytest.fixture(autouse=True)
def results_path(tmp_path, monkeypatch) -> str:
    """Return where results lie, and keep the state beside it."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", str(tmp_path / "results"))
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")
    return str(tmp_path / "results")


def spend(
    dag: str, run: str, *calls: dict[str, Any], fence: int = 1, result_path: str = "", ends: bool = True
) -> ResultStore:
    """Book calls as a task does, with its bill when it ends."""
    own = task_folder(load_settings().results_path, dag, run, "dispatch")
    folder = open_folder(result_path or own)
    leave_note(open_folder(own), Note(result_path=folder.uri))
    answers = Answers(
        **{"chunk": 0, "start": 0, "stop": 10, "fingerprint": "f", "source": "rows", "prompt": PROMPT},
        **{"model": "m-1", "schema_digest": "", "host": ""},
    )
    store = open_store(folder, answers, fence=fence, on_existing="resume")
    for number, call in enumerate(calls):
        usd, days = call.pop("usd", "0.5"), call.pop("days", 0)
        store.book(
            index=number,
            attempt=1,
            cost=Cost(usd=Decimal(usd or 0), unpriced=usd is None),
            **{**CALL, "at": (NOW - timedelta(days=days)).timestamp(), **call},
        )
    store.close()
    if ends:
        store.put_bill()
    return store


def asked(api: Any, query: str = "", role: str = "viewer") -> dict[str, Any]:
    answer = api(f"{PATH}{query}", role)
    assert answer.status_code == 200, answer.text
    return answer.json()


def amounts(told: dict[str, Any], *keys: str) -> dict[tuple[str, ...], str]:
    return {tuple(row[key] for key in keys): row["usd"] for row in told["spent"]}


def test_money_is_told_by_dag_day_model_that_served_and_prompt(api):
    spend("billing", "r1", {"served_model": "m-1-2026"}, {"days": 2}, {"days": 2, "usd": "0.000001"})
    spend("support", "r1", {"prompt": "answer@1"}, {"days": 8, "usd": "4"})
    told = asked(api, "?days=7")
    today, before = (f"{NOW - timedelta(days=days):%Y-%m-%d}" for days in (0, 2))
    assert amounts(told, "dag_id", "day", "model", "prompt") == {
        ("billing", today, "m-1-2026", "ticket@3"): "0.5",
        ("billing", before, "m-1", "ticket@3"): "0.500001",
        ("support", today, "m-1", "answer@1"): "0.5",
    }
    (row,) = [row for row in told["spent"] if row["day"] == before]
    assert (row["calls"], row["tokens_in"], row["tokens_cached"], row["tokens_out"]) == (2, 200, 20, 40)
    assert (told["runs"], told["left_out"], told["unread"]) == (2, 0, 0)
    assert sum(map(Decimal, amounts(asked(api, "?days=30"), "dag_id", "day").values())) == Decimal("5.500001")


def test_what_is_not_known_is_counted(api, results_path):
    spend("billing", "r1", {"usd": None}, {"usage": None, "maybe_paid": True, "usd": "0"}, {"at": None})
    broken = open_folder(task_folder(results_path, "billing", "r2", "dispatch"))
    broken.put("ledger-00000-1-0.jsonl", iter([b"{}\n"]))
    told = asked(api)
    dated, undated = sorted(told["spent"], key=lambda row: row["day"] == "")
    assert (dated["calls"], dated["unpriced"], dated["maybe_paid"]) == (1, 1, 1)
    assert (undated["calls"], undated["usd"]) == (1, "0.5")
    assert told["unreadable_total"] == 1
    assert "ledger-00000-1-0.jsonl" in told["unreadable"][0]


def test_a_bill_counts_only_as_long_as_it_speaks_of_the_ledgers_that_are_there(api, results_path):
    spend("billing", "r1", {})
    folder = open_folder(task_folder(results_path, "billing", "r1", "dispatch"))
    with folder.open("bill-00000.json") as file:
        bill = json.loads(file.read())
    bill["spent"][0]["usd"] = "7"
    folder.put("bill-00000.json", iter([json.dumps(bill).encode()]), replace=True)
    assert amounts(asked(api), "dag_id") == {("billing",): "7"}
    # A new try is under way: its calls count at once, and the ledgers are the truth.
    spend("billing", "r1", {"usd": "2"}, fence=2, ends=False)
    assert amounts(asked(api), "dag_id") == {("billing",): "2.5"}
    spend("billing", "r1", {"usd": "1"}, fence=3)
    assert amounts(asked(api), "dag_id") == {("billing",): "3.5"}
    folder.put("bill-00000.json", iter([b"no JSON"]), replace=True)
    assert amounts(asked(api), "dag_id") == {("billing",): "3.5"}


def test_a_place_that_several_runs_share_is_counted_once(api, tmp_path):
    elsewhere = str(tmp_path / "kept")
    spend("billing", "r1", {}, result_path=elsewhere)
    spend("billing", "r2", {}, result_path=elsewhere, fence=2)
    assert amounts(asked(api), "dag_id") == {("billing",): "1.0"}


def test_only_dags_that_the_caller_may_read_are_told_of(api):
    spend("billing", "r1", {})
    assert api(PATH).status_code == 401
    assert api(f"{PATH}?days=91", "viewer").status_code == 422


def test_who_may_not_read_connections_is_told_of_no_budget(api, connection):
    told = api("/llmbatch/api/v1/budgets", "viewer").json()
    assert told == {"may_see": False, "budgets": [], "per_run": [], "unreadable": []}
    assert api("/llmbatch/api/v1/budgets").status_code == 401


def test_reading_is_bounded_to_the_latest_runs_and_to_some_bytes(results_path):
    for number in range(5):
        spend("billing", f"r{number}", {"usd": str(number)}, ends=number != 4)
    began = {n: NOW - timedelta(days=9 - n) for n in range(5)}
    known = {("billing", f"r{n}"): Known(began=at, ended=at) for n, at in began.items()}
    known["billing", "r4"] = Known(began=began[4], ended=None)
    known["billing", "gone"] = Known(began=NOW, ended=NOW)
    settings, since = load_settings(), NOW - timedelta(days=8, hours=1)

    def read(**most: int) -> tuple[Any, list[Decimal]]:
        found = costs_of(settings, ["billing"], known, since, **most)
        return found, sorted(spent.usd for _, spent in found.spent)

    found, usd = read()
    # The first one ended before; one is gone.
    assert (usd, found.runs, found.left_out, found.without_results) == ([1, 2, 3, 4], 4, 0, 1)
    found, usd = read(most_runs=2)
    assert (usd, found.runs, found.left_out) == ([3, 4], 2, 2)
    found, usd = read(most_bytes=10)
    assert (usd, found.unread) == ([1, 2, 3], 1)
    del known["billing", "r0"]
    assert read()[1] == [0, 1, 2, 3, 4]


def test_a_thousand_runs_are_added_up_quickly(api, results_path):
    spend("dag-0", "r0", {"days": 29})
    first = Path(results_path) / "dag-0" / "r0" / "dispatch"
    files = {each.name: each.read_text() for each in first.iterdir()}
    for number in range(1, 1000):
        folder = Path(results_path) / f"dag-{number % 10}" / f"r{number}" / "dispatch"
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text.replace(str(first), str(folder)))
    began = time.perf_counter()
    told = asked(api)
    took = time.perf_counter() - began
    print(f"1,000 runs {took:.2f} s, load {os.getloadavg()[0]:.1f}")
    assert (told["runs"], sum(row["calls"] for row in told["spent"])) == (1000, 1000)
    assert took <= 1.5 * LENIENCE


@pytest.fixture
def connection(monkeypatch) -> dict[str, Any]:
    """Have a connection with budgets in the environment."""
    told = {
        "conn_type": "llmbatch",
        "host": "https://llm.example/v1",
        "password": "sk-canary",
        "extra": {
            "account": "team",
            "budgets": [
                {"name": "spring", "usd": 100, "per": "month"},
                {"name": "daily", "tokens": 5000, "per": "day"},
                {"name": "each", "usd": 90, "per": "run"},
            ],
            "prices": {"m-1": {"input": "1", "output": "1"}},
        },
    }
    monkeypatch.setenv("AIRFLOW_CONN_LLM_TEAM", json.dumps(told))
    monkeypatch.setenv("AIRFLOW_CONN_FILES", "fs:///")
    return told


def take_of(connection: dict[str, Any], **amounts: int) -> None:
    """Take from a connection's limits and budgets as a worker does."""
    settings = parse("llm_team", host=connection["host"], password="sk-canary", extra=connection["extra"])
    whole = scope(settings, settings.credentials[0], "m-1", owner="d/r/t/-1", fence=1, run="d/r")
    need = Need(**amounts)
    in_state(lambda state: state.take(whole, [need]))


def test_budgets_are_told_as_the_state_has_them(api, connection):
    take_of(connection, tokens=250, micro_usd=750_000)
    answer = api("/llmbatch/api/v1/budgets", "op")
    assert "sk-canary" not in answer.text
    told = answer.json()
    budgets = {each["name"]: each for each in told["budgets"] if "llm_team" in each["conn_ids"]}
    assert budgets.keys() == {"spring", "daily"}
    spring = budgets["spring"]
    assert (spring["unit"], spring["used"], spring["capacity"], spring["per"]) == (
        *("usd", "0.750000", "100.000000"),
        "month",
    )
    assert (budgets["daily"]["used"], budgets["daily"]["share"]) == ("250", 0.05)
    assert 0 < budgets["daily"]["resets_s"] <= 86400
    assert "llm_team" in told["per_run"]
