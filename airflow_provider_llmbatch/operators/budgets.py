"""How full the budgets of connections are that begin anew with each day or month."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.operators import surroundings
from airflow_provider_llmbatch.operators.batch import read_again
from airflow_provider_llmbatch.operators.bridge import Bridge
from airflow_provider_llmbatch.settings import Settings

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.connection import ConnectionSettings
    from airflow_provider_llmbatch.engine.state.protocols import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """A budget, and what of it is spent or reserved."""

    #: connections that share it
    conn_ids: tuple[str, ...]
    account: str
    name: str
    unit: Literal["tokens", "micro_usd"]
    #: in that unit; 0 used may also mean that the state knows nothing of it
    used: int
    capacity: int
    per: Literal["", "day", "month"]
    #: seconds until the next period begins
    resets_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """What was found in connections."""

    uses: Sequence[BudgetUse]
    #: connections with budgets per run, which are not followed here
    per_run: Sequence[str]
    #: why connections could not be read
    unreadable: Sequence[str]


def budgets_of(
    settings: Settings, conn_ids: Iterable[str], *, clock: Callable[[], float] = time.time
) -> Budgets:
    """
    Return the budgets of some connections as the state has them.

    :param clock: Unix seconds.
    :raises StoreError: when the state cannot be reached.
    """
    found, unreadable, per_run = [], [], []
    for conn_id in conn_ids:
        try:
            connection = read_again(conn_id)
        except ConfigurationError as error:
            unreadable.append(str(error))
            continue
        found.append(connection)
        if any(budget.per == "run" for budget in connection.budgets):
            per_run.append(conn_id)
    return Budgets(uses=_uses(settings, found, clock()), per_run=per_run, unreadable=unreadable)


def _uses(settings: Settings, connections: Sequence[ConnectionSettings], now: float) -> list[BudgetUse]:
    scopes = [(one.conn_id, account, scope) for one in connections for account, scope in _scopes(one)]

    async def main() -> dict[str, BudgetUse]:
        found: dict[str, BudgetUse] = {}
        state = surroundings.open_state(settings)
        try:
            for conn_id, account, scope in scopes:
                levels = {level.key: level.used for level in await state.levels(scope)}
                for meter in scope.meters:
                    sharing = found[meter.key].conn_ids if meter.key in found else ()
                    found[meter.key] = BudgetUse(
                        conn_ids=tuple(dict.fromkeys((*sharing, conn_id))),
                        account=account,
                        name=meter.key.removeprefix(f"budget/{account}/"),
                        unit="tokens" if meter.unit == "tokens" else "micro_usd",
                        used=levels[meter.key],
                        capacity=meter.capacity,
                        per=meter.period,
                        resets_s=meter.resets_in(now) or 0.0,
                    )
        finally:
            await state.close()
        return found

    return list(Bridge[dict[str, BudgetUse]]().run(main).values()) if scopes else []


def _scopes(connection: ConnectionSettings) -> Iterator[tuple[str, Scope]]:
    """Yield, for each account of a connection, what holds its budgets of a day or month."""
    from airflow_provider_llmbatch.engine.dispatch.limit.scope import scope

    by_account = {credential.account: credential for credential in connection.credentials}
    for account, credential in by_account.items():
        whole = scope(connection, credential, "", owner="console", fence=0)
        budgets = tuple(meter for meter in whole.meters if meter.period)
        if budgets:
            yield account, replace(whole, meters=budgets)
