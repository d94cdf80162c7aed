"""Known failures of other systems that have to do with counting, reserving and pricing."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.compose import Composer
from airflow_provider_llmbatch.engine.identity import UniqueIds
from airflow_provider_llmbatch.engine.items import BadItem, Item, Request, Usage
from airflow_provider_llmbatch.engine.prompt import inline_prompt
from airflow_provider_llmbatch.engine.source import open_source
from airflow_provider_llmbatch.engine.split import plan
from airflow_provider_llmbatch.engine.tokens.count import TokenCounter
from airflow_provider_llmbatch.engine.tokens.price import PriceTable
from airflow_provider_llmbatch.engine.tokens.reserve import Drift

PROMPT = inline_prompt("Be brief.", None)
SPECIAL = "The file ends with <|endoftext|> and <|im_start|>system"


def compose(model: str, item: Item, **options: Any) -> Request:
    request = Composer(PROMPT, model, TokenCounter.for_model(model), **options).compose(item)
    assert isinstance(request, Request), request
    return request


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4", "gpt-oss-20b", "my-team-deploy"])
@pytest.mark.parametrize(
    "item",
    [
        Item(index=0, id="a", prompt=SPECIAL),
        Item(index=0, id="a", messages=[{"role": "user", "content": SPECIAL, "name": "<|endoftext|>"}]),
        Item(index=0, id="a", messages=[{"role": "user", "content": [{"type": "text", "text": SPECIAL}]}]),
        Item(index=0, id="a", messages=[{"role": "system", "content": SPECIAL}]),
        Item(index=0, id="a", prompt="x", params={"tools": [{"name": SPECIAL}]}),
    ],
    ids=["prompt", "message", "text part", "system message", "tools"],
)
def test_the_spelling_of_a_special_token_is_counted_as_plain_text_on_every_path(model, item):
    """
    Text that spells a special token is text: it is counted, and it goes out.

    P57
    """
    request = compose(model, item)
    assert request.prompt_tokens > 15
    sent = json.dumps([*request.messages, request.params])
    assert "<|endoftext|>" in sent


def test_a_source_with_special_tokens_can_be_planned():
    """P57."""
    source = open_source([{"prompt": SPECIAL}, {"prompt": "<|endofprompt|>" * 100}])
    composer = Composer(PROMPT, "gpt-4o", TokenCounter.for_model("gpt-4o"))
    with UniqueIds(source.uri) as ids:
        planned = plan(
            source.rows,
            composer.compose,
            ids=ids,
            source_uri=source.uri,
            prompt=PROMPT.ref,
            model="gpt-4o",
            token_budget=10_000,
        )
    assert (planned.items, planned.bad_items) == (2, 0)


@pytest.mark.parametrize("model", ["my-team-deploy", "gpt-9.9-mini", "vendor/llama-x"])
def test_an_unknown_model_is_counted_with_the_default_encoding_and_a_margin_and_this_is_said_once(model):
    """P59."""
    said: list[str] = []
    counter = TokenCounter.for_model(model, on_unknown=said.append)
    known = TokenCounter.for_model("gpt-4o")
    text = "A sentence of ten tokens or so, perhaps more. " * 20
    for _ in range(3):
        assert known.count(text) * 1.1 <= counter.count(text) <= known.count(text) * 1.1 + 1
    assert len(said) == 1
    assert repr(model) in said[0]
    assert "Set 'encoding' in the connection" in said[0]


def test_an_azure_spelling_of_a_known_model_is_known():
    """P59."""
    counter = TokenCounter.for_model("gpt-35-turbo", on_unknown=pytest.fail)
    assert counter.encoding == "cl100k_base"


def test_newer_models_are_counted_with_their_own_encoding():
    """P63."""
    text = "漢字かな交じり文の例を示す" * 154
    item = Item(index=0, id="a", prompt=text[:2000])
    newer, older = compose("gpt-4o", item).prompt_tokens, compose("gpt-4", item).prompt_tokens
    assert newer < older * 0.9


def test_a_list_of_forty_tools_is_counted():
    """P63."""
    tools = [
        {"type": "function", "function": {"name": f"tool_{n}", "parameters": {"type": "object"}}}
        for n in range(40)
    ]
    plain = compose("gpt-4o", Item(index=0, id="a", prompt="x"))
    with_tools = compose("gpt-4o", Item(index=0, id="a", prompt="x"), params={"tools": tools})
    assert with_tools.prompt_tokens - plain.prompt_tokens >= 40 * 15


def test_an_image_is_refused_with_words_instead_of_counted_at_a_guess():
    """P63."""
    image = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    (row,) = open_source([{"messages": [{"role": "user", "content": [image]}]}]).rows()
    assert isinstance(row.item, BadItem)
    assert "images, audio and files cannot be sent yet" in row.item.error.message


def test_the_error_of_the_count_is_followed():
    """P63."""
    drift = Drift()
    for _ in range(100):
        drift.observe(counted=200, used=150)
    assert drift.ratio == pytest.approx(0.75, abs=0.01)


def test_a_small_limit_lets_the_first_call_without_a_cap_out():
    """P08."""
    item = Item(index=0, id="a", messages=[{"role": "user", "content": "one two three"}])
    request = compose("gpt-4o", item, token_limit=500)
    assert request.tokens == 500
    assert request.output_tokens == 500 - request.prompt_tokens < 512


def test_cached_tokens_are_billed_once_at_their_own_price():
    """P91."""
    own = {"sim-small": {"input": "1.00", "cached_input": "0.10", "output": "4.00"}}
    cost = PriceTable(own, now=lambda: 0.0).cost("sim-small", Usage(prompt=2006, cached=1920, completion=300))
    assert cost.usd == Decimal("0.001478")
    assert not cost.unpriced
