from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.items import Item, ItemError, Message
from airflow_provider_llmbatch.engine.prompt import inline_prompt, render, required_variables

SYSTEM = {"role": "system", "content": "Be brief."}


def item(**content: Any) -> Item:
    return Item(index=0, id="a", **content)


def rendered(system: str, user: str | None, **content: Any) -> list[Message]:
    messages = render(inline_prompt(system, user), item(**content))
    assert not isinstance(messages, ItemError), messages
    return messages


def problem(user: str | None, system: str = "", **content: Any) -> str:
    error = render(inline_prompt(system, user), item(**content))
    assert isinstance(error, ItemError)
    assert error.kind == "unrendered"
    assert error.message.startswith("Item 'a' cannot be rendered with inline@")
    return error.message


def test_vars_fill_the_system_and_the_user_template():
    messages = rendered("In {{ lang }}.", "Sort {{ text }}!", vars={"lang": "en", "text": "this"})
    assert messages == [{"role": "system", "content": "In en."}, {"role": "user", "content": "Sort this!"}]


def test_without_a_system_text_there_is_no_system_message():
    assert rendered("", "hi", vars={}) == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("user", "expected"),
    [(None, "text"), ("Sort {{ other }}", "text"), ("Sort: {{ prompt }}", "Sort: text")],
    ids=["no template", "template without it", "template with it"],
)
def test_a_prompt_is_the_user_message_or_a_variable_of_its_template(user, expected):
    assert rendered("Be brief.", user, prompt="text") == [SYSTEM, {"role": "user", "content": expected}]


def test_messages_stay_as_they_are_behind_the_system_message():
    turns = [{"role": "user", "content": "{{ hi }}"}, {"role": "assistant", "content": "ho"}]
    assert rendered("Be brief.", "unused {{ x }}", messages=turns) == [SYSTEM, *turns]


@given(st.text(min_size=1).filter(str.strip))
def test_the_text_of_an_item_is_never_taken_for_a_template(text):
    hostile = "{{ 7 * 7 }}{% for x in y %}" + text
    assert rendered("", None, prompt=hostile)[0]["content"] == hostile
    assert rendered("", "<{{ prompt }}>", prompt=hostile)[0]["content"] == f"<{hostile}>"
    assert rendered("", "<{{ x }}>", vars={"x": hostile})[0]["content"] == f"<{hostile}>"


def test_a_missing_variable_is_named_with_those_that_are_there():
    message = problem("{{ text }} {{ lang }}", vars={"txt": "secret", "lang": "en"})
    assert "variable 'text' is missing; the item has 'lang', 'txt'" in message
    assert "secret" not in message
    assert "variables 'a', 'b' are missing; the item has no variables" in problem("{{ b }}{{ a }}", vars={})


def test_a_variable_of_the_system_template_counts_for_every_kind_of_item():
    for content in ({"prompt": "x"}, {"messages": [{"role": "user", "content": "x"}]}, {"vars": {"y": 1}}):
        assert "variable 'lang' is missing" in problem("{{ y }}", system="In {{ lang }}", **content)


@pytest.mark.parametrize(
    ("user", "values", "words"),
    [
        ("{{ order.total }}", {"order": {}}, "has no attribute 'total'"),
        ("{{ order.total.net }}", {"order": {}}, "has no attribute 'total'"),
        ("{{ name }}", {"name": None}, "variable 'name' is null; give a value, or a default"),
        ("{{ order.total }}", {"order": {"total": None}}, "a value inside a variable is null"),
        ("{{ 1 / n }}", {"n": 0}, "fails on these values with ZeroDivisionError"),
        ("{{ n + 1 }}", {"n": "secret"}, "fails on these values with TypeError"),
        ("{{ x.__class__.__mro__ }}", {"x": "a"}, "access to attribute '__class__'"),
        ("{{ x.append(1) }}", {"x": []}, "is unsafe"),
        ("{{ x }}", {"x": " "}, "the user message is empty"),
    ],
)
def test_what_a_template_cannot_do_with_the_values_is_an_outcome(user, values, words):
    message = problem(user, vars=values)
    assert words in message
    assert "secret" not in message


def test_vars_without_a_user_template_are_an_outcome():
    assert "has no user template for the item's vars" in problem(None, system="s", vars={"x": 1})


@pytest.mark.parametrize(
    "user",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
        "{{ 'x' * 10000000000 }}",
        "{{ [1] * n }}",
        "{% macro m() %}{{ m() }}x{% endmacro %}{{ m() }}",
        "{{ 9 ** 99999999 }}",
        "{% for a in range(10000000) %}x{% endfor %}",
    ],
)
def test_a_template_that_runs_away_is_stopped(user):
    problem(user, vars={"n": 10**10})


def test_values_that_are_false_but_not_null_are_printed():
    assert (
        rendered("", "{{ a }}|{{ b }}|{{ c }}", vars={"a": 0, "b": False, "c": ""})[0]["content"]
        == "0|False|"
    )


def test_text_is_not_escaped_and_json_can_be_asked_for():
    assert rendered("", "{{ a }} {{ b | tojson }}", vars={"a": "<b> & 'c'", "b": {"k": [1, None]}}) == [
        {"role": "user", "content": "<b> & 'c' {\"k\": [1, null]}"}
    ]


@pytest.mark.parametrize(
    ("system", "user", "expected"),
    [
        ("", None, set()),
        ("In {{ lang }}", "{{ text }} {{ order.total }}", {"lang", "text", "order"}),
        ("", "{% for x in rows %}{{ x }}{% endfor %}{% set y = 1 %}{{ y }}", {"rows"}),
        ("", "{{ note | default('none') }}{% if hint is defined %}{{ hint }}{% endif %}{{ text }}", {"text"}),
    ],
)
def test_the_variables_that_a_prompt_needs_are_known_before_any_item(system, user, expected):
    assert required_variables(inline_prompt(system, user)) == expected


def test_a_variable_with_a_default_may_be_missing():
    assert rendered("", "{{ note | default('none') }}", vars={})[0]["content"] == "none"
