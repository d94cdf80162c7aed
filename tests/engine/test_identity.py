from __future__ import annotations

import hashlib
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import pytest

from airflow_provider_llmbatch.engine.identity import (
    UniqueIds,
    canonical_json,
    digest_rows,
    fingerprint,
    request_fingerprint,
    stable_key,
)
from airflow_provider_llmbatch.errors import InputError

MESSAGES = [{"role": "user", "content": "hi"}]


def test_ids_that_differ_pass():
    with UniqueIds("items.jsonl") as ids:
        for index in range(1000):
            ids.add(f"id-{index}", index)


def test_an_id_that_comes_twice_is_refused_with_both_places():
    with UniqueIds("items.jsonl") as ids:
        ids.add("a", 0)
        ids.add("A", 1)
        ids.add("ticket-7", 12)
        with pytest.raises(
            InputError, match=r"items.jsonl: items 12 and 40 \(counted from 0\) .* id 'ticket-7'"
        ):
            ids.add("ticket-7", 40)


def test_a_group_that_begins_twice_is_refused_with_both_places():
    with UniqueIds("items.jsonl") as ids:
        ids.add("g", 0)
        ids.start_group("g", 0)
        with pytest.raises(InputError, match=r"group 'g' begins at item 0 .* and again at item 9"):
            ids.start_group("g", 9)


def test_the_table_of_ids_lies_on_disk_and_is_deleted(tmp_path):
    with UniqueIds("items.jsonl", directory=str(tmp_path)) as ids:
        ids.add("a", 0)
        assert list(tmp_path.glob("*/ids.sqlite"))
    assert not list(tmp_path.iterdir())


def test_a_fingerprint_does_not_depend_on_the_order_of_keys_or_the_kind_of_mapping():
    one = fingerprint({"a": 1, "b": [Decimal("1.50")]})
    other = fingerprint(MappingProxyType({"b": ("1.50",), "a": 1}))
    assert one == other
    assert len(one) == 64


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("ab",)),
        (("a", None), ("a",)),
        ((1,), ("1",)),
        (([1], 2), (1, [2])),
        (("\u00e9",), ("e\u0301",)),
    ],
)
def test_fingerprints_of_different_parts_differ(one, other):
    assert fingerprint(*one) != fingerprint(*other)


def test_a_fingerprint_stays_the_same_over_versions():
    assert fingerprint("a", {"b": 1}) == hashlib.sha256(b'["a",{"b":1}]').hexdigest()


def test_text_that_is_no_character_has_a_fingerprint():
    assert fingerprint("\ud800") != fingerprint("\ud801")


def test_what_json_cannot_hold_has_no_canonical_form():
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))
    with pytest.raises(TypeError, match="Path has no JSON form"):
        canonical_json(Path())


def test_a_request_is_another_question_when_any_part_of_it_differs():
    base = ("https://a", "m", MESSAGES, {"temperature": 0}, None)
    changed = [
        ("https://b", *base[1:]),
        (base[0], "m2", *base[2:]),
        (*base[:2], [*MESSAGES, *MESSAGES], *base[3:]),
        (*base[:3], {"temperature": 1}, None),
        (*base[:4], {"type": "object"}),
    ]
    assert len({request_fingerprint(*parts) for parts in (base, *changed)}) == 6
    assert request_fingerprint(*base) == request_fingerprint(*base[:2], tuple(MESSAGES), {"temperature": 0})


def test_a_stable_key_tells_task_instances_apart_and_fits_into_paths():
    keys = {stable_key("dag", "run", "task", n) for n in range(5)} | {stable_key("dag", "run_task", "x")}
    assert len(keys) == 6
    assert all(len(key) == 32 and key.isalnum() for key in keys)


def test_rows_are_hashed_with_a_newline_after_each():
    assert digest_rows([b"a", b"bc"]) == hashlib.sha256(b"a\nbc\n").hexdigest()
