"""What is particular to state in a file of one host."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.state.protocols import Settlement, Standing
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.errors import ConfigurationError, StoreError
from tests.contracts.states import dollars, needs, requests, scope


async def test_what_was_taken_outlives_the_process(tmp_path: Path):
    path, limited = (
        tmp_path / "deep" / "state.db",
        scope(requests(5, window_s=600.0, burst_s=600.0), dollars(100)),
    )
    first = SqliteState(path)
    assert await first.next("task") == 1
    await first.take(limited, needs(3, micro_usd=10))
    await first.close()
    second = SqliteState(path)
    assert {level.key: level.used for level in await second.levels(limited)} == {
        "a/requests": 3,
        "budget/dag/run/task": 30,
    }
    assert await second.next("task") == 2
    await second.close()


async def test_many_may_make_the_file_at_the_same_time(tmp_path: Path):
    for number in range(20):
        path = tmp_path / f"state-{number}.db"
        opened = await asyncio.gather(*(asyncio.to_thread(SqliteState, path) for _ in range(8)))
        assert sorted([await state.next("task") for state in opened]) == list(range(1, 9))
        for state in opened:
            await state.close()


async def test_a_file_of_another_host_is_refused_with_the_remedy(tmp_path: Path):
    await SqliteState(tmp_path / "state.db", host="alpha").close()
    with pytest.raises(ConfigurationError, match=r"made on host 'alpha', this is 'beta'.*state_url"):
        SqliteState(tmp_path / "state.db", host="beta")
    await SqliteState(tmp_path / "state.db", host="alpha").close()


def test_a_file_that_is_no_state_is_named(tmp_path: Path):
    (tmp_path / "state.db").write_bytes(b"not a database, but long enough to be read as one" * 50)
    with pytest.raises(StoreError, match=r"Cannot open the state file .*state\.db: file is not a database"):
        SqliteState(tmp_path / "state.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named_with_the_remedy(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match=r"Make its folder writable or set \[llmbatch\] state_url"):
        SqliteState(tmp_path / "state.db")


async def test_a_file_that_breaks_while_it_is_used_stops_takes(tmp_path: Path):
    state = SqliteState(tmp_path / "state.db")
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
        other.execute("DROP TABLE leases")
    with pytest.raises(StoreError, match=r"state\.db failed: no such table: leases"):
        await state.take(scope(requests(5)), needs(1))
    await state.close()


async def test_a_take_that_fails_half_way_changes_nothing(tmp_path: Path):
    limited = scope(requests(5), dollars(100))
    state = SqliteState(tmp_path / "state.db", new_id=lambda: "the same every time")
    grant = (await state.take(limited, needs(1, micro_usd=10))).grants[0]
    with pytest.raises(StoreError, match="UNIQUE constraint failed"):
        await state.take(limited, needs(2, micro_usd=10), [Settlement(grant=grant, late=True)])
    assert {level.key: level.used for level in await state.levels(limited)} == {
        "a/requests": 1,
        "budget/dag/run/task": 10,
    }
    await state.close()


async def test_tables_do_not_grow_with_the_calls_made(tmp_path: Path):
    clock = [1_800_000_000.0]
    state = SqliteState(tmp_path / "state.db", now=lambda: clock[0])
    limited = scope(requests(100_000), dollars(10**9))
    for _ in range(200):
        clock[0] += 0.05
        grants = (await state.take(limited, needs(5, micro_usd=1))).grants
        await state.take(limited, [], [Settlement(grant=grant, tokens=1, micro_usd=1) for grant in grants])
    await state.close()
    with closing(sqlite3.connect(tmp_path / "state.db")) as file:
        sizes = {
            table: file.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("quanta", "leases", "holds", "turns", "buckets", "totals")
        }
    assert sizes["quanta"] <= 300
    assert (sizes["leases"], sizes["holds"], sizes["turns"]) == (0, 0, 0)
    assert (sizes["buckets"], sizes["totals"]) == (1, 1)


async def test_where_a_run_stands_is_read_back_as_it_was(tmp_path: Path):
    state = SqliteState(tmp_path / "state.db", now=lambda: 1_800_000_000.0)
    assert await state.standing("task") is None
    standing = Standing(owner="task", result_path="/r", done=3, items=9, figures={"rate": 1.5})
    await state.report(standing)
    found = await state.standing("task")
    assert found is not None
    assert (found.done, found.items, found.figures, found.at) == (3, 9, {"rate": 1.5}, 1_800_000_000.0)
    await state.close()
