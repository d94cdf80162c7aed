from __future__ import annotations

from typing import get_args, get_type_hints

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.exchange import Failure
from airflow_provider_llmbatch.engine.observe.causes import likely_cause
from airflow_provider_llmbatch.engine.observe.kinds import EXAMPLE_LENGTH, KINDS, FailureKinds, one_line


def test_the_first_of_a_kind_is_its_example_and_the_rest_are_counted():
    kinds = FailureKinds()
    first = kinds.add("http", 503, None, "busy")
    assert first is not None
    assert first.name == "http 503"
    assert first.example.startswith("busy — The service has trouble")
    assert [kinds.add("http", 503, None, f"busy {n}") for n in range(9)] == [None] * 9
    assert (first.count, kinds.total) == (10, 10)


def test_the_commonest_is_one_line_with_its_count_cause_and_remedy():
    kinds = FailureKinds()
    assert kinds.commonest() == ""
    kinds.add("timeout", None, None, "No complete answer within 60 s.")
    for _ in range(3):
        kinds.add("http", 401, "invalid_api_key", "Incorrect key\nprovided")
    assert kinds.commonest() == (
        "3 x http 401 invalid_api_key: Incorrect key provided — The key is wrong or was revoked: check the "
        "connection's password."
    )
    assert [kind.count for kind in kinds.by_count()] == [3, 1]


def test_codes_that_a_service_makes_up_take_no_room():
    kinds = FailureKinds()
    new = [kinds.add("http", 400, f"code-{number}", "x" * 9000) for number in range(10_000)]
    assert sum(kind is not None for kind in new) == KINDS + 1
    assert len(kinds.by_count()) == KINDS + 1
    assert kinds.total == 10_000
    assert all(len(kind.example) < 400 for kind in kinds.by_count())


def test_every_failure_of_a_call_has_a_cause_and_a_remedy():
    for kind in get_args(get_type_hints(Failure)["kind"]):
        if kind != "http":
            assert ": " in likely_cause(kind, None, None), kind
    for status in (*range(400, 405), 408, 413, 422, 429, 500, 502, 503, 504, 529):
        assert likely_cause("http", status, None), status


@given(st.text(st.characters(exclude_categories=()), max_size=600))
def test_any_message_is_one_printable_line(text: str):
    line = one_line(text)
    assert len(line) <= EXAMPLE_LENGTH
    assert line.isprintable()
