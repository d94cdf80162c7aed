from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_llmbatch.engine.compose import Composer
from airflow_provider_llmbatch.engine.items import Item, Outcome, PromptRef, Request, Result
from airflow_provider_llmbatch.engine.prompt import Prompt, inline_prompt
from airflow_provider_llmbatch.engine.tokens.count import TokenCounter
from airflow_provider_llmbatch.errors import ConfigurationError, InputError

COUNTER = TokenCounter("o200k_base")
PROMPT = inline_prompt("Be brief.", "Sort {{ text }}")
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


def composer(prompt: Prompt = PROMPT, **options: Any) -> Composer:
    return Composer(prompt, "gpt-4o", COUNTER, **options)


def item(**fields: Any) -> Item:
    return Item(**{"index": 4, "id": "a", "vars": {"text": "this"}, **fields})


def request(made: Composer, given: Item | None = None, **options: Any) -> Request:
    composed = made.compose(given or item(), **options)
    assert isinstance(composed, Request), composed
    return composed


def result(made: Composer, given: Item | None = None) -> Result:
    composed = made.compose(given or item())
    assert isinstance(composed, Result), composed
    return composed


def test_an_item_becomes_a_counted_request():
    made = request(composer(variant="b"), item(metadata={"k": 1}))
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Sort this"}]
    assert made == Request(
        index=4,
        id="a",
        model="gpt-4o",
        messages=messages,
        params={},
        prompt=PROMPT.ref,
        prompt_tokens=COUNTER.count_messages(messages),
        output_tokens=512,
        metadata={"k": 1},
        variant="b",
    )


def test_params_of_an_item_stand_over_those_of_the_task_and_these_over_the_prompts():
    ref = PromptRef(name="a", version="1", sha="0" * 64)
    prompt = Prompt(ref=ref, user="{{ text }}", params={"temperature": 1, "top_p": 1, "seed": 1})
    made = composer(prompt, params={"top_p": 2, "seed": 2, "stop": "x"})
    assert request(made, item(params={"seed": 3, "stop": None})).params == {
        "temperature": 1,
        "top_p": 2,
        "seed": 3,
    }


def test_the_schema_goes_with_every_request_and_is_counted():
    plain, with_schema = request(composer()), request(composer(response_format=SCHEMA))
    assert with_schema.params == {"response_format": SCHEMA}
    assert with_schema.prompt_tokens == plain.prompt_tokens + COUNTER.count_params(
        {"response_format": SCHEMA}
    )


def test_tools_of_a_task_and_of_an_item_are_counted():
    plain = request(composer()).prompt_tokens
    one = request(composer(params={"tools": [TOOL]}))
    assert one.prompt_tokens == plain + COUNTER.count_params({"tools": [TOOL]})
    two = request(composer(params={"tools": [TOOL]}), item(params={"tools": [TOOL, TOOL]}))
    assert two.prompt_tokens == plain + COUNTER.count_params({"tools": [TOOL, TOOL]})
    none = request(composer(params={"tools": [TOOL]}), item(params={"tools": None}))
    assert none.prompt_tokens == plain


def test_a_row_that_cannot_be_rendered_ends_as_unrendered():
    ended = result(composer(), item(vars={"txt": "this"}, metadata=[1]))
    assert (ended.index, ended.id, ended.outcome) == (4, "a", Outcome.UNRENDERED)
    assert ended.error.kind == "unrendered"
    assert "variable 'text' is missing" in ended.error.message
    assert (ended.prompt, ended.metadata, ended.attempts) == (PROMPT.ref, [1], 0)


@pytest.mark.parametrize("name", ["model", "messages", "stream", "n"])
def test_params_that_are_not_to_be_set_are_refused_wherever_they_come_from(name):
    with pytest.raises(ConfigurationError, match=f"The task's params hold '{name}'"):
        composer(params={name: 1})
    ref = PromptRef(name="a", version="1", sha="0" * 64)
    with pytest.raises(InputError, match=f"The params of prompt a@1 hold '{name}'"):
        composer(Prompt(ref=ref, user="u", params={name: 1}))
    ended = result(composer(), item(params={name: 1}))
    assert ended.outcome is Outcome.UNRENDERED
    assert f"The params of item 'a' hold '{name}'" in ended.error.message


def test_an_explicit_cap_is_reserved():
    assert request(composer(params={"max_tokens": 900})).output_tokens == 900
    made = request(composer(params={"max_tokens": 900}), item(params={"max_tokens": 50}))
    assert made.output_tokens == 50


def test_the_learnt_reserve_is_asked_for_each_request():
    lengths = iter([100, 200])
    made = composer(reserve=lambda: next(lengths))
    assert [request(made).output_tokens for _ in range(2)] == [100, 200]


@pytest.mark.parametrize("limit", ["window", "token_limit"])
def test_without_a_cap_the_reserve_shrinks_to_what_is_left(limit):
    made = request(composer(**{limit: 100}))
    assert made.tokens == 100


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"window": 500},
            "the model's context window is 500. Shorten the item, lower max_tokens, or use a model",
        ),
        (
            {"token_limit": 500},
            "the token limit is 500. Shorten the item, lower max_tokens, or raise the limit",
        ),
        ({"token_limit": 500, "window": 400}, "the model's context window is 400"),
    ],
)
def test_a_request_that_can_never_fit_ends_as_too_long_with_its_numbers(options, words):
    prompt_tokens = request(composer()).prompt_tokens
    ended = result(composer(params={"max_tokens": 600}, **options))
    assert ended.outcome is Outcome.TOO_LONG
    assert ended.error.kind == "too_long"
    assert (
        f"has {prompt_tokens} prompt tokens and reserves 600 for the reply, {prompt_tokens + 600} in all"
        in (ended.error.message)
    )
    assert words in ended.error.message


def test_a_prompt_that_fills_the_window_leaves_no_room_for_a_reply():
    prompt_tokens = request(composer()).prompt_tokens
    assert result(composer(window=prompt_tokens)).outcome is Outcome.TOO_LONG
    assert request(composer(window=prompt_tokens + 1)).output_tokens == 1


def test_the_message_of_a_result_does_not_quote_the_item():
    given = item(vars={"text": "secret " * 200})
    assert "secret" not in result(composer(window=100), given).error.message


def test_earlier_turns_of_a_chain_stand_between_the_system_message_and_the_item():
    earlier = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}]
    made = request(composer(), earlier=earlier)
    assert [m["content"] for m in made.messages] == ["Be brief.", "one", "1", "Sort this"]
    assert made.prompt_tokens == COUNTER.count_messages(made.messages)
    bare = request(composer(inline_prompt("", "Sort {{ text }}")), earlier=earlier)
    assert [m["content"] for m in bare.messages] == ["one", "1", "Sort this"]


def test_composing_does_not_change_the_item():
    turns = ({"role": "user", "content": "hi"},)
    given = item(vars=None, messages=turns)
    earlier = [{"role": "user", "content": "one"}]
    request(composer(), given, earlier=earlier)
    assert given.messages == turns
    assert earlier == [{"role": "user", "content": "one"}]


def test_what_every_request_has_is_known_without_an_item():
    made = composer(response_format=SCHEMA)
    user = COUNTER.count_messages([{"role": "user", "content": "Sort this"}])
    assert request(made).prompt_tokens == made.fixed_tokens + user - COUNTER.count_messages([])
