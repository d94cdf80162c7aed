"""The bill that a run leaves beside its ledger."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from airflow_provider_llmbatch.engine.results import bills
from airflow_provider_llmbatch.engine.results.folder import Folder, open_folder
from airflow_provider_llmbatch.engine.results.tree import files_below
from tests.engine.rehearsal import A_DOLLAR_A_MILLION, dispatched, job, rows, simulated
from tests.engine.results.made import book, opened, send


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


def test_bills_are_found_below_a_place_on_any_storage(reopen: Callable[[], Folder]):
    store = opened(reopen())
    for index in range(3):
        send(store, index)
        book(store, index, at=86_400.0 * 20_000, served_model="m-1-2026", prompt="p@1")
    store.close()
    store.put_bill()
    folder = reopen()
    files = getattr(folder, "_files", None)
    above = folder.uri.rpartition("/")[0]
    ((place, sizes),) = files_below(above, filesystem=files).items()
    assert (place, sizes) == (folder.uri, folder.sizes())
    ledgers = bills.ledgers_of(sizes)[0]
    (spent,) = bills.read(folder, 0, ledgers) or []
    assert (spent.day, spent.model, spent.prompt, spent.calls) == ("2024-10-04", "m-1-2026", "p@1", 3)
    assert [spent] == bills.add_up(folder, ledgers)
    assert files_below(f"{above}/nothing", filesystem=files) == {}
    # A call of another try is not on the bill.
    late = opened(reopen())
    book(late, 4)
    late.close()
    assert bills.read(reopen(), 0, bills.ledgers_of(reopen().sizes())[0]) is None
