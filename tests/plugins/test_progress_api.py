"""How far runs are, over HTTP: from what tasks say in the shared state, and from what they have stored."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine import manifests
from airflow_provider_llmbatch.engine.items import Chunk, Cost, Outcome, PromptRef, Usage
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.state.protocols import Standing
from airflow_provider_llmbatch.engine.summary import Estimate, Manifest, Plan
from airflow_provider_llmbatch.operators.batch import write_plan
from airflow_provider_llmbatch.operators.bridge import Bridge
from airflow_provider_llmbatch.operators.places import Note, leave_note, task_folder
from airflow_provider_llmbatch.operators.surroundings import open_state
from airflow_provider_llmbatch.settings import load_settings

RUN = ("billing", "manual__1")
PATH = f"/llmbatch/api/v1/dags/{RUN[0]}/runs/{RUN[1]}/progress"
TOKENS = {"in": 1000, "cached": 100, "out": 50, "reasoning": 0}


@pytest.fixture(autouse=True)
def results_path(tmp_path, monkeypatch) -> str:
    """Return where results lie, and keep the state beside it."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", str(tmp_path / "results"))
    monkeypatch.setenv("AIRFLOW__LLMBATCH__STATE_URL", f"sqlite:///{tmp_path}/state.db")
    return str(tmp_path / "results")


def say(task: str, map_index: int, done: int, items: int, **figures: Any) -> None:
    """Report a standing as a task does."""
    usual = {
        **{"state": "running", "resumed": 10, "counts": {"ok": done - 10}, "rate": 2.0, "eta_s": 5},
        **{"usd": "0.5", "unpriced": False, "tokens": TOKENS, "waits_for": "", "use": {}},
    }
    standing = Standing(
        owner=f"{RUN[0]}/{RUN[1]}/{task}/{map_index}",
        result_path="/r",
        done=done,
        items=items,
        figures={**usual, **figures},
    )

    async def report() -> None:
        state = open_state(load_settings())
        try:
            await state.report(standing)
        finally:
            await state.close()

    Bridge[None]().run(report)


def test_the_parts_of_a_mapped_task_are_added_up_against_plan_and_budget(api, results_path):
    chunks = tuple(
        Chunk(number=n, start=100 * n, stop=100 * n + 100, offset=0, sha="ab" * 32) for n in range(3)
    )
    plan = Plan(
        **{"source": "/s.jsonl", "items": 300, "bad_items": 0, "model": "m", "chunks": chunks},
        **{"prompt": PromptRef(name="p", version="1", sha="ab" * 32)},
        **{"prompt_tokens": 1, "output_tokens": 1, "estimate": Estimate(usd=Decimal("2.5"))},
    )
    folder = open_folder(task_folder(results_path, *RUN, "dispatch"))
    descriptor = write_plan(folder, plan)[0]
    leave_note(folder, Note(result_path=folder.uri, chunk=descriptor, budget_usd="4"))
    say("dispatch", 0, 60, 100, waits_for="team/m/tokens_per_minute", use={"team/m/tokens_per_minute": 0.97})
    say("dispatch", 1, 100, 100, state="complete", waits_for="")
    (task,) = api(PATH, "viewer").json()["tasks"]
    assert (task["task_id"], task["map_index"], task["state"]) == ("dispatch", -1, "running")
    assert (task["items"], task["done"], task["resumed"], task["counts"]) == (300, 160, 20, {"ok": 140})
    assert task["tokens"]["in"] == 2000
    assert (task["usd"], task["planned_usd"], task["budget_usd"]) == ("1.0", "2.5", "4")
    assert (task["rate"], task["eta_s"]) == (2.0, 70.0)
    assert [part["waits_for"] for part in task["parts"]] == ["team/m/tokens_per_minute", ""]
    assert task["parts"][0]["use"] == {"team/m/tokens_per_minute": 0.97}


def test_what_the_state_has_forgotten_is_read_from_the_results(api, results_path):
    folder = open_folder(task_folder(results_path, *RUN, "send", 2))
    leave_note(folder, Note(result_path=folder.uri))
    manifests.store(
        folder,
        Manifest(
            **{"result_path": folder.uri, "state": "stopped", "items": 5, "reason": "the budget is spent"},
            counts={Outcome.OK: 3, Outcome.UNSENT: 2},
            usage=Usage(prompt=30, completion=6),
            cost=Cost(usd=Decimal("0.03"), unpriced=True),
            limits={"use": 0.5},
        ),
    )
    (Path(folder.uri) / "chunk-00000.json").write_text("{}")
    (task,) = api(PATH, "viewer").json()["tasks"]
    assert (task["map_index"], task["state"], task["done"], task["items"]) == (2, "stopped", 3, 5)
    assert (task["usd"], task["unpriced"], task["eta_s"]) == ("0.03", True, None)
    assert task["parts"][0]["reason"] == "the budget is spent"


def test_dags_with_results_are_listed_and_other_folders_are_not(api, results_path):
    open_folder(task_folder(results_path, "größe/1", "r", "t")).put("x", iter([b""]))
    open_folder(f"{results_path}/~queues").put("x", iter([b""]))
    assert api("/llmbatch/api/v1/dags", "viewer").json() == {"dag_ids": ["größe/1"]}


def test_a_run_that_has_sent_nothing_has_no_tasks(api):
    assert api(PATH, "viewer").json() == {"tasks": []}
    assert api("/llmbatch/api/v1/dags", "viewer").json() == {"dag_ids": []}
    assert api(PATH).status_code == 401
