"""The adviser: what it is shown, and that nothing but the number of a plan changes anything."""

from __future__ import annotations

import json

import pytest

from airflow_provider_llmbatch.engine.fusion.adviser import choose, question
from airflow_provider_llmbatch.engine.fusion.hardware import DeviceFacts, plan, plans
from airflow_provider_llmbatch.engine.fusion.schema import read_schema

SCHEMA = read_schema(
    {
        "ct": {"kind": "ct", "series_uid": "1.2.840.secret"},
        "john_doe": {"kind": "note", "text_model": "/secret/model"},
    }
)
PATTERNS = {"11": 3, "10": 1}
H200 = DeviceFacts(kind="cuda", name="H200", capability=(9, 0), memory_gib=141, cores=16)
OFFERED = plans(H200)


def test_the_first_plan_is_the_usual_one_and_all_are_of_the_device():
    for facts in (H200, DeviceFacts(cores=4), DeviceFacts(kind="cuda", capability=(7, 5), memory_gib=1)):
        found = plans(facts, batch=8)
        assert found[0] == plan(facts, batch=8)
        assert {each.device for each in found} == {found[0].device}
        assert len({each.reason for each in found}) == len(found)
        assert all(facts.kind == "cpu" or each.batch <= facts.memory_gib * 2 for each in found)


def test_it_sees_kinds_and_counts_and_no_name_path_or_identifier():
    shown = question(OFFERED, SCHEMA, PATTERNS)
    assert set(shown) == {"modalities", "records_by_presence", "plans"}
    assert shown["records_by_presence"] == {"10": 1, "11": 3}
    assert [each["kind"] for each in shown["modalities"]] == ["ct", "note"]
    assert "secret" not in json.dumps(shown)
    assert "john" not in json.dumps(shown)


def test_the_plan_that_is_named_is_taken():
    asked = []
    found = choose(OFFERED, SCHEMA, PATTERNS, lambda shown: asked.append(shown) or {"plan": 2})
    assert (found.index, found.of, found.problem) == (2, len(OFFERED), None)
    assert asked == [question(OFFERED, SCHEMA, PATTERNS)]


@pytest.mark.parametrize(
    "answer", [{"plan": 99}, {"plan": -1}, {"plan": True}, {"plan": "1"}, [1], None, "1"]
)
def test_an_odd_answer_changes_nothing(answer):
    found = choose(OFFERED, SCHEMA, PATTERNS, lambda shown: answer)
    assert (found.index, found.problem) == (0, "the answer is no number of a plan")


def test_a_failure_changes_nothing_and_is_told_by_its_type():
    def fail(shown):
        raise ValueError("a secret of the service")

    found = choose(OFFERED, SCHEMA, PATTERNS, fail)
    assert (found.index, found.problem) == (0, "asking failed (ValueError)")


def test_where_there_is_no_choice_nobody_is_asked():
    found = choose(plans(DeviceFacts(), batch=1), SCHEMA, PATTERNS, pytest.fail)
    assert (found.index, found.of) == (0, 1)
