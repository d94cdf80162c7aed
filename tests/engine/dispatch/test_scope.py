"""What shares a limit: the account, whichever connection names it."""

from __future__ import annotations

from typing import Any

from airflow_provider_llmbatch.engine.connection import parse
from airflow_provider_llmbatch.engine.dispatch.limit.scope import scope
from airflow_provider_llmbatch.engine.state.protocols import Scope
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from tests.contracts.states import needs


def scope_of(conn_id: str, key: str, **extra: Any) -> Scope:
    told = {"requests_per_minute": 30, "burst_seconds": 120, **extra}
    connection = parse(conn_id, host="https://api.example.com/v1", password=key, extra=told)
    return scope(connection, connection.credentials[0], "m", owner=conn_id, fence=1)


async def granted(*scopes: Scope) -> list[int]:
    state = SqliteState(":memory:", now=lambda: 1_800_000_000.0)
    found = [len((await state.take(one, needs(20))).grants) for one in scopes]
    await state.close()
    return found


async def test_two_connections_with_one_key_share_one_limit():
    assert await granted(scope_of("one", "sk-same"), scope_of("two", "sk-same")) == [20, 10]


async def test_two_keys_of_one_account_share_one_limit():
    assert await granted(
        scope_of("one", "sk-first", account="team"), scope_of("two", "sk-second", account="team")
    ) == [20, 10]


async def test_two_accounts_have_a_limit_each():
    assert await granted(scope_of("one", "sk-first"), scope_of("two", "sk-second")) == [20, 20]
