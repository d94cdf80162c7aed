from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.observe.names import LONGEST, MOST_VALUES, NONE, OTHER, Values, segment

SAFE = re.compile(r"[a-zA-Z0-9_-]+")


@pytest.mark.parametrize(
    "text", ["label_rows", "gpt-4o-2024-08-06", "claude-3-5-sonnet-20241022", "A", "x" * LONGEST]
)
def test_a_plain_name_stays_as_it_is(text):
    assert segment(text) == text


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("größe", "gr_e"),
        ("file=/a b:c", "file_a_b_c"),
        ("vendor/llama:free", "vendor_llama_free"),
        ("group.task", "group_task"),
        ("a|c\nforged:1", "a_c_forged_1"),
        ("对话", "_"),
        ("\ud800", "_"),
        ("y" * 300, "y" * 37),
    ],
)
def test_any_other_name_keeps_what_can_be_read_and_gets_a_hash(text, readable):
    assert re.fullmatch(rf"{readable}-[0-9a-f]{{10}}", segment(text))


def test_a_name_that_looks_rewritten_is_rewritten_too():
    """Or a DAG could be named after what another one becomes."""
    assert segment(segment("a b")) != segment("a b")


def test_words_with_a_meaning_are_not_taken_by_a_model_of_that_name():
    assert NONE not in {segment(NONE), Values().name(NONE)}
    assert OTHER not in {segment(OTHER), Values().name(OTHER)}


@given(st.lists(st.text(st.characters(exclude_categories=()), max_size=80), unique=True, max_size=20))
def test_names_are_safe_short_and_never_the_same_for_two_texts(texts):
    """P84."""
    names = [segment(text) for text in texts]
    assert all(SAFE.fullmatch(name) and len(name) <= LONGEST for name in names)
    assert len(set(names)) == len(texts)


def test_the_first_values_keep_their_names_and_all_later_ones_share_one():
    """P86."""
    values = Values()
    names = [values.name(f"model-{number}") for number in range(10_000)]
    assert names[:MOST_VALUES] == [f"model-{number}" for number in range(MOST_VALUES)]
    assert set(names[MOST_VALUES:]) == {OTHER}
    assert (values.name("model-0"), values.name("")) == ("model-0", NONE)
