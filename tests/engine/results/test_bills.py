"""The bill that a run leaves beside its ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from airflow_provider_llmbatch.engine.results import bills
from airflow_provider_llmbatch.engine.results.folder import open_folder
from tests.engine.rehearsal import A_DOLLAR_A_MILLION, dispatched, job, rows, simulated


async def test_a_run_leaves_a_bill_that_says_what_its_ledger_says(tmp_path: Path):
    failed_once = {"match": {"every": 3}, "reply": {"status": 500, "error": {"message": "oops"}}}
    with simulated(failed_once) as service:
        done = await dispatched(job(rows(6), service.url, tmp_path, prices=A_DOLLAR_A_MILLION))
    folder = open_folder(done.manifest.result_path)
    ledgers = bills.ledgers_of(folder.sizes())[0]
    (spent,) = bills.read(folder, 0, ledgers) or []
    assert [spent] == bills.add_up(folder, ledgers)
    assert (spent.day, spent.model) == (f"{datetime.now(UTC):%Y-%m-%d}", "gpt-4o-mini")
    assert spent.prompt == str(done.manifest.prompt)
    assert (spent.calls, spent.usage, spent.usd) == (6, done.manifest.usage, done.manifest.cost.usd)
    assert spent.usd > 0
