from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.items import BadItem, Item
from airflow_provider_llmbatch.engine.source.parse import to_item

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"prompt": "a"}, Item(index=3, id="#3", prompt="a")),
        ({"id": 17, "prompt": "a"}, Item(index=3, id="17", prompt="a")),
        ({"vars": {}}, Item(index=3, id="#3", vars={})),
        ({"messages": [USER]}, Item(index=3, id="#3", messages=(USER,))),
        ({"prompt": "a", "vars": None, "id": None}, Item(index=3, id="#3", prompt="a")),
        (
            {"prompt": "a", "group": "g", "seq": 0, "params": {"temperature": 0}, "metadata": [1]},
            Item(index=3, id="#3", prompt="a", group="g", seq=0, params={"temperature": 0}, metadata=[1]),
        ),
        (
            {"prompt": "a", "reference": {"label": "b"}},
            Item(index=3, id="#3", prompt="a", reference={"label": "b"}),
        ),
    ],
)
def test_a_row_that_follows_the_rules_is_an_item(values, expected):
    assert to_item(values, 3, "here") == expected


PARTS = {"role": "user", "content": [{"type": "text", "text": "look"}]}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}


@pytest.mark.parametrize("message", [PARTS, CALL, {"role": "tool", "tool_call_id": "c1", "content": "3"}])
def test_messages_may_have_text_parts_and_tool_calls(message):
    item = to_item({"messages": [USER, message]}, 0, "here")
    assert isinstance(item, Item)
    assert item.messages == (USER, message)


def image(kind: str) -> dict[str, object]:
    return {
        "messages": [{"role": "user", "content": [{"type": kind, kind: {"url": "https://x.test/a.png"}}]}]
    }


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "has none of vars, prompt and messages; give one of them"),
        ({"text": "a", "lang": "en"}, "but 'text', 'lang'; put prompt variables under 'vars'"),
        ({"prompt": "a", "vars": {}}, "has vars and prompt; an item has exactly one of"),
        ({"prompt": "a", "refrence": "b"}, "has unknown keys: 'refrence'; put them under 'metadata'"),
        ({"prompt": 7}, "has the number 7 as prompt; give text"),
        ({"prompt": " \n"}, "has an empty prompt"),
        ({"vars": ["a"]}, "has a list as vars; give an object"),
        ({"prompt": "a", "params": "hot"}, "has text as params; give an object"),
        ({"prompt": "a", "id": ""}, "has empty text as id"),
        ({"prompt": "a", "id": True}, "has true as id"),
        ({"prompt": "a", "id": 1.5}, "has the number 1.5 as id"),
        ({"prompt": "a", "id": "x" * 513}, "has an id of 513 characters; at most 512"),
        ({"prompt": "a", "group": "g"}, "has group without seq; a chain needs both"),
        ({"prompt": "a", "seq": 0}, "has seq without group"),
        ({"prompt": "a", "group": "g", "seq": -1}, "has the number -1 as seq"),
        ({"prompt": "a", "group": "g", "seq": "1"}, "has text as seq"),
        ({"messages": []}, "has an empty list as messages"),
        ({"messages": ["hi"]}, "has text as message 0"),
        (
            {"messages": [USER, {"role": "bot", "content": "x"}]},
            "has the role 'bot' in message 1; use one of",
        ),
        ({"messages": [{"role": "user"}]}, "has no content in message 0"),
        ({"messages": [{"role": "user", "content": 3}]}, "has the number 3 as content of message 0"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "has a text part without text"),
        (
            image("image_url"),
            "a part of type 'image_url' in message 0; images, audio and files cannot be sent",
        ),
        (image("input_audio"), "a part of type 'input_audio'"),
        ({"input": "embed me"}, "asks for embeddings, which cannot be sent yet"),
    ],
)
def test_a_row_against_the_rules_says_what_to_mend(values, words):
    bad = to_item(values, 3, "items.jsonl, line 4")
    assert isinstance(bad, BadItem)
    assert bad.error.kind == "bad_row"
    assert bad.error.message.startswith("items.jsonl, line 4: the row ")
    assert words in bad.error.message


def test_a_bad_row_keeps_its_id_when_that_is_readable():
    assert to_item({"id": "ticket-9"}, 3, "here").id == "ticket-9"
    assert to_item({"id": 1.5, "prompt": "a"}, 3, "here").id == "#3"


def test_many_unknown_keys_are_named_in_part():
    bad = to_item({f"key{n}": n for n in range(1000)}, 0, "here")
    assert isinstance(bad, BadItem)
    assert "and 990 more" in bad.error.message
    assert len(bad.error.message) < 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["id", "vars", "prompt", "messages", "params", "group", "seq", "metadata", "other"])


@given(JSON | st.dictionaries(KEYS, JSON, max_size=4))
def test_any_json_value_is_an_item_or_a_bad_item(values):
    assert isinstance(to_item(values, 0, "here"), Item | BadItem)
