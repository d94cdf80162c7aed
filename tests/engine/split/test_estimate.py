from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.connection import LimitRule
from airflow_provider_llmbatch.engine.items import Cost, PromptRef, Usage
from airflow_provider_llmbatch.engine.split import estimate, explain
from airflow_provider_llmbatch.engine.summary import Estimate, Plan
from airflow_provider_llmbatch.engine.tokens.price import PriceTable


def plan_of(
    items: int = 100, prompt_tokens: int = 10_000, output_tokens: int = 50_000, **fields: Any
) -> Plan:
    values = {
        "source": "s",
        "bad_items": 0,
        "prompt": PromptRef(name="p", version="1", sha="0"),
        "model": "m",
    }
    return Plan(
        items=items,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        chunks=(),
        **{**values, **fields},
    )


def cost(usage: Usage) -> Cost:
    table = PriceTable({"m": {"input": "1.00", "output": "4.00"}}, now=lambda: 0.0)
    return table.cost("m", usage)


def test_without_limits_and_prices_nothing_is_known_and_nothing_binds():
    assert estimate(plan_of()) == Estimate(usd=None, usd_low=None, usd_high=None, seconds=0.0, binds="")
    assert explain(plan_of(), []) == "No limit slows this down."


@pytest.mark.parametrize(
    ("limit", "seconds", "binds"),
    [
        ({"requests_per_minute": 10}, 600, "requests_per_minute"),
        ({"tokens_per_minute": 6000}, 600, "tokens_per_minute"),
        ({"requests_per_minute": 10, "tokens_per_minute": 6001}, 600, "requests_per_minute"),
        ({"requests_per_minute": 11, "tokens_per_minute": 6000}, 600, "tokens_per_minute"),
        ({"requests_per_day": 100}, 0, ""),
        ({"requests_per_day": 99}, 86_400, "requests_per_day"),
        ({"tokens_per_day": 20_000}, 2 * 86_400, "tokens_per_day"),
        ({"max_in_flight": 5}, 40, "max_in_flight"),
        ({"tokens_per_minute": 6000, "counts": "used"}, 350, "tokens_per_minute"),
        ({"requests_per_minute": 10, "window_s": 6.0}, 60, "requests_per_minute"),
    ],
)
def test_the_limit_that_takes_longest_binds(limit, seconds, binds):
    made = estimate(plan_of(), limits=[LimitRule(**limit)], latency_s=2.0)
    assert (made.seconds, made.binds) == (pytest.approx(seconds), binds)


def test_accounts_add_up_and_one_without_a_limit_makes_it_none():
    ten, twenty, free = (LimitRule(requests_per_minute=n) for n in (10, 20, None))
    assert estimate(plan_of(), limits=[ten, twenty]).seconds == pytest.approx(200)
    assert estimate(plan_of(), limits=[ten, free]).binds == ""


def test_bad_rows_take_no_time_and_no_money():
    made = estimate(plan_of(bad_items=50), limits=[LimitRule(requests_per_minute=10)])
    assert made.seconds == 300
    nothing = estimate(plan_of(items=2, bad_items=2, prompt_tokens=0, output_tokens=0), cost=cost)
    assert (nothing.usd, nothing.usd_low, nothing.usd_high) == (0, 0, 0)


def test_money_spreads_from_one_output_token_to_all_that_is_reserved():
    made = estimate(plan_of(), cost=cost)
    assert made.usd_low == Decimal("0.0104")
    assert made.usd == Decimal("0.11")
    assert made.usd_high == Decimal("0.21")


def test_expected_money_uses_the_length_of_earlier_replies():
    assert estimate(plan_of(), cost=cost, output_per_item=30).usd == Decimal("0.022")
    assert estimate(plan_of(), cost=cost, output_per_item=9999).usd == Decimal("0.21")


def test_money_is_exact_when_the_average_is_no_whole_number():
    made = estimate(plan_of(items=3, prompt_tokens=100, output_tokens=50), cost=cost)
    assert made.usd_high == Decimal("0.0003")


def test_a_tiered_price_is_that_of_single_requests_and_not_of_their_sum():
    table = PriceTable(now=lambda: 0.0)
    many = plan_of(items=1000, prompt_tokens=1_000_000, output_tokens=0)
    made = estimate(many, cost=lambda usage: table.cost("gemini-2.5-pro", usage))
    assert made.usd_high == table.cost("gemini-2.5-pro", Usage(prompt=1000)).usd * 1000


def test_an_unknown_price_gives_no_money_at_all():
    made = estimate(plan_of(), cost=lambda _: Cost(unpriced=True))
    assert (made.usd, made.usd_low, made.usd_high) == (None, None, None)


def explained(limit: LimitRule, **fields: Any) -> str:
    plan = plan_of(**fields)
    return explain(dataclasses.replace(plan, estimate=estimate(plan, limits=[limit])), [limit])


def test_the_explanation_says_when_the_reserve_for_output_decides():
    said = explained(LimitRule(tokens_per_minute=6000))
    assert said.startswith("At the limits this takes about 10 min: tokens_per_minute binds, at 6,000.")
    assert "Of the 60,000 tokens that count, 50,000 are reserved for output" in said
    assert "max_tokens decides the pace" in said


@pytest.mark.parametrize(
    ("limit", "fields"),
    [
        (LimitRule(tokens_per_minute=6000, counts="used"), {}),
        (LimitRule(tokens_per_minute=6000), {"output_tokens": 500}),
        (LimitRule(requests_per_minute=1), {}),
    ],
)
def test_the_explanation_does_not_blame_the_reserve_when_it_is_not_the_reason(limit, fields):
    assert "max_tokens" not in explained(limit, **fields)
