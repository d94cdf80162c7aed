"""From a connection's limits and a task's budget to the meters that one take touches."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from airflow_provider_llmbatch.engine.connection import Budget, ConnectionSettings, Credential, LimitRule
from airflow_provider_llmbatch.engine.state.protocols import Gate, Meter, Scope

#: Domain of all limits that are not named otherwise.
DOMAIN = "llmbatch"
#: Calls that may be open at once where the connection does not say.
MAX_IN_FLIGHT = 100
#: Seconds of the window of limits per day, as a multiple of that of limits per minute.
MINUTES_PER_DAY = 24 * 60
_MICRO = 1_000_000


def scope(
    connection: ConnectionSettings,
    credential: Credential,
    model: str,
    *,
    owner: str,
    fence: int,
    budget_key: str = "",
    budget_usd: Decimal | None = None,
    run: str = "",
    priority: int = 1,
    gates: tuple[Gate, ...] = (),
) -> Scope:
    """
    Return what a call of ``model`` with ``credential`` takes from.

    :param owner: the task instance, and ``fence`` its try.
    :param budget_key: who shares the budget, such as the run.
    :param budget_usd: most money for everybody with that key, in US dollars.
    :param run: who shares the connection's budgets per run.
    :param priority: 0 takes before 1.
    :param gates: what calls go through.
    """
    rule = connection.limit(credential.account, model)
    meters = tuple(_rates(credential.account, rule))
    if budget_usd is not None:
        capacity = int(budget_usd * _MICRO)
        meters += (Meter(key=f"budget/{budget_key}", unit="micro_usd", capacity=capacity, window_s=None),)
    meters += tuple(_budget(budget, credential.account, run) for budget in connection.budgets)
    return Scope(
        domain=DOMAIN,
        throttle=f"{credential.account}/{model}",
        meters=meters,
        max_in_flight=rule.max_in_flight or MAX_IN_FLIGHT,
        owner=owner,
        fence=fence,
        priority=priority,
        gates=gates,
        queue=f"{credential.account}/{rule.group}",
        lease_s=connection.timeout_s + connection.connect_timeout_s + rule.arrival_slack,
    )


def _budget(budget: Budget, account: str, run: str) -> Meter:
    """Return the meter of a connection's budget; one name is one budget, for all that share the account."""
    money = budget.usd is not None
    return Meter(
        key=f"budget/{account}/{budget.name}" + (f"/{run}" if budget.per == "run" else ""),
        unit="micro_usd" if money else "tokens",
        capacity=int((budget.usd or 0) * _MICRO) if money else budget.tokens or 0,
        window_s=None,
        counts="used",
        period="" if budget.per == "run" else budget.per,
    )


def token_limit(rule: LimitRule) -> int | None:
    """Return the tokens of the largest request that the limits can ever grant; None when any can."""
    given = [n for n in (rule.tokens_per_minute, rule.tokens_per_day) if n is not None]
    return min(given, default=None)


def _rates(account: str, rule: LimitRule) -> Iterator[Meter]:
    for unit in ("requests", "tokens"):
        for name, window_s in (("minute", rule.window_s), ("day", rule.window_s * MINUTES_PER_DAY)):
            capacity = getattr(rule, f"{unit}_per_{name}")
            if capacity is not None:
                yield Meter(
                    key=f"{account}/{rule.group}/{unit}_per_{name}",
                    unit="requests" if unit == "requests" else "tokens",
                    capacity=capacity,
                    window_s=window_s,
                    burst_s=rule.burst_seconds,
                    slack_s=rule.arrival_slack,
                    counts=rule.counts,
                )
