from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelPrice
from genai_prices.types import Usage as PricedUsage

from airflow_provider_llmbatch.engine.items import Cost, Usage
from airflow_provider_llmbatch.engine.tokens.price import PriceTable, _fast, read_prices
from airflow_provider_llmbatch.errors import ConfigurationError

USAGE = Usage(prompt=2006, cached=1920, completion=300)
OWN = {"sim-small": {"input": "1.00", "cached_input": "0.10", "output": "4.00"}}
NOON = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC).timestamp()


def table(own=None, **options) -> PriceTable:
    return PriceTable(own, now=lambda: NOON, **options)


def test_cached_tokens_are_billed_once():
    assert table(OWN).cost("sim-small", USAGE) == Cost(usd=Decimal("0.001478"))


def test_without_a_cached_price_cached_tokens_cost_what_input_costs():
    prices = table({"m": {"input": 1, "output": 4}})
    assert prices.cost("m", USAGE).usd == Decimal("0.003206")


def test_more_cached_tokens_than_tokens_do_not_make_it_cheaper_than_free():
    cost = table(OWN).cost("sim-small", Usage(prompt=10, cached=50, completion=0))
    assert cost.usd == Decimal("0.000001")


def test_the_own_table_stands_over_published_prices():
    assert table({"gpt-4o": {"input": "1", "output": "1"}}).cost("gpt-4o", USAGE).usd == Decimal("0.002306")
    assert table().cost("gpt-4o", USAGE).usd == Decimal("0.005615")


@pytest.mark.parametrize("model", ["sim-small", "my-team-deploy", "gpt-9.9-mini", "vendor/llama-x", ""])
def test_an_unknown_price_is_unpriced_and_not_zero(model):
    assert table().cost(model, USAGE) == Cost(unpriced=True)
    assert table().window(model) is None


def test_a_vendor_in_front_of_a_known_model_is_understood():
    assert table().cost("openai/gpt-4o", USAGE) == table().cost("gpt-4o", USAGE)


def test_an_address_finds_the_prices_of_its_service_and_an_unknown_one_does_not_hide_the_name():
    groq = table(api_url="https://api.groq.com/openai/v1")
    assert not groq.cost("llama-3.3-70b-versatile", USAGE).unpriced
    gateway = table(api_url="https://llm.example.com/v1")
    assert gateway.cost("gpt-4o", USAGE) == table().cost("gpt-4o", USAGE)


def test_the_window_of_a_known_model_is_known():
    assert table().window("gpt-4o") == 128_000


def test_our_arithmetic_gives_what_the_library_gives_for_every_published_price():
    usages = [(2006, 1920, 300), (200_000, 0, 5), (200_001, 200_001, 1), (300_000, 100, 10), (0, 0, 0)]
    compared = 0
    for provider in get_snapshot().providers[::3]:
        for model in provider.models:
            prices = (
                [model.prices] if isinstance(model.prices, ModelPrice) else [p.prices for p in model.prices]
            )
            for price in prices:
                pricing = _fast(price)
                for prompt, cached, completion in usages if pricing else ():
                    usage = PricedUsage(
                        input_tokens=prompt, cache_read_tokens=cached, output_tokens=completion
                    )
                    ours = pricing(Usage(prompt=prompt, cached=cached, completion=completion)).usd
                    assert ours == price.calc_price(usage)["total_price"], (provider.id, model.id)
                    compared += 1
    assert compared > 500


def test_a_price_that_changes_with_the_time_follows_the_clock():
    clock = [NOON]
    prices = PriceTable(now=lambda: clock[0])
    by_day = prices.cost("deepseek-chat", USAGE).usd
    clock[0] += 8 * 3600
    by_night = prices.cost("deepseek-chat", USAGE).usd
    assert 0 < by_night < by_day


def test_large_sums_are_exact():
    cost = table({"m": {"input": "0.123456", "output": "0"}}).cost("m", Usage(prompt=987_654_321))
    assert cost.usd == Decimal("0.123456") * 987_654_321 / 1_000_000


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"m": {"input": "1"}}, "price of model 'm' needs 'input' and 'output'"),
        ({"m": "free"}, "needs 'input' and 'output'"),
        (
            {"m": {"input": "1", "output": "1", "cached": "1"}},
            "unknown key 'cached'; known are input, cached_input",
        ),
        ({"m": {"input": "-1", "output": "1"}}, "for input is '-1'; give US dollars per million"),
        ({"m": {"input": "1", "output": "NaN"}}, "for output is 'NaN'"),
        ({"m": {"input": "a lot", "output": "1"}}, "for input is 'a lot'"),
        ({"m": {"input": None, "output": "1"}}, "for input is None"),
    ],
)
def test_a_price_that_is_none_is_refused(own, words):
    with pytest.raises(ConfigurationError, match=words):
        table(own)


def test_the_own_table_can_be_a_file(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text("sim-small: {input: 1.00, cached_input: 0.10, output: '4.00'}\n")
    prices = PriceTable(read_prices(path), now=lambda: NOON)
    assert prices.cost("sim-small", USAGE).usd == Decimal("0.001478")


@pytest.mark.parametrize("content", [None, "- a", "a: [", b"\xff"])
def test_a_table_file_that_is_none_is_refused(tmp_path, content):
    path = tmp_path / "prices.yaml"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigurationError, match=r"The price table .*prices.yaml"):
        PriceTable(read_prices(path), now=lambda: NOON)
