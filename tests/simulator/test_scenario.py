"""Scenario files: what they may say, and which rule answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.simulator.scenario import Call, Script, check_scenario, read_scenario


def call(text: str = "hello", **changes: Any) -> Call:
    plain = {"model": "m-1", "credential": "a", "params": {}, "sha": f"sha of {text}", "age_s": 0.0}
    return Call(text=text, **{**plain, **changes})


def script(*rules: dict[str, Any]) -> Script:
    return Script(check_scenario({"rules": rules}, source="test"))


def picks(script: Script, *calls: Call) -> list[int | None]:
    """Return which rule answered each call, all of them let in."""
    found = []
    for one in calls:
        pick = script.pick(one)
        script.count(pick)
        found.append(pick.rule)
    return found


@pytest.mark.parametrize(
    ("match", "fitting", "other"),
    [
        ({"contains": "ell"}, call("hello"), call("goodbye")),
        ({"model": "m-1"}, call(), call(model="m-2")),
        ({"key": "a"}, call(), call(credential="b")),
        ({"param": "max_tokens"}, call(params={"max_tokens": 5}), call()),
        ({"after_s": 5}, call(age_s=5.0), call(age_s=4.9)),
        ({"until_s": 5}, call(age_s=4.9), call(age_s=5.0)),
        ({"contains": "ell", "model": "m-1"}, call("hello"), call("hello", model="m-2")),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_condition_admits_what_fits_it_only(match: dict[str, Any], fitting: Call, other: Call) -> None:
    played = script({"match": match, "reply": {"status": 500}})
    assert picks(played, fitting, other) == [0, None]


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ({}, [0, 0, 0, 0, 0, 0]),
        ({"nth": 2}, [None, 0, None, None, None, None]),
        ({"nth": [1, 4]}, [0, None, None, 0, None, None]),
        ({"every": 3}, [None, None, 0, None, None, 0]),
        ({"first": 2}, [0, 0, None, None, None, None]),
    ],
    ids=str,
)
def test_call_counters_choose_by_order(match: dict[str, Any], expected: list[int | None]) -> None:
    played = script({"match": match, "reply": {"status": 500}})
    assert picks(played, *(call(str(number)) for number in range(6))) == expected


def test_an_attempt_counts_each_body_for_itself() -> None:
    played = script({"match": {"attempt": [1, 2]}, "reply": {"status": 500}})
    assert picks(played, call("x"), call("y"), call("x"), call("x"), call("y")) == [0, 0, 0, None, 0]


def test_counters_count_only_calls_that_meet_the_other_conditions() -> None:
    played = script({"match": {"contains": "x", "first": 1}, "reply": {"status": 500}})
    assert picks(played, call("y"), call("x"), call("x again")) == [None, 0, None]


def test_the_first_matching_rule_answers_and_later_ones_do_not_count_it() -> None:
    played = script(
        {"match": {"contains": "x"}, "reply": {"status": 500}},
        {"match": {"first": 1}, "reply": {"status": 503}},
    )
    assert picks(played, call("x"), call("y"), call("z")) == [0, 1, None]


def test_a_call_that_is_not_let_in_is_not_counted() -> None:
    played = script({"match": {"first": 1}, "reply": {"status": 500}})
    assert played.pick(call()).rule == 0
    assert played.pick(call()).rule == 0
    assert picks(played, call(), call()) == [0, None]


def test_a_probability_draws_by_body_and_not_by_order() -> None:
    rule = {"match": {"probability": 0.3}, "reply": {"status": 500}}
    calls = [call(str(number)) for number in range(500)]
    drawn = {
        one.text
        for one, rule_number in zip(calls, picks(script(rule), *calls), strict=True)
        if rule_number == 0
    }
    backwards = calls[::-1]
    again = {
        one.text
        for one, number in zip(backwards, picks(script(rule), *backwards), strict=True)
        if number == 0
    }
    assert drawn == again
    assert 100 < len(drawn) < 200


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], r"the file: .*valid dictionary.*"),
        ({"rule": []}, r"rule: Extra inputs are not permitted"),
        ({"rules": [{"match": {}}]}, r"rules\.0\.reply: Field required"),
        ({"rules": [{"reply": {"status": 42}}]}, r"rules\.0\.reply\.status: .*200 \(got '42'\)"),
        ({"rules": [{"reply": {"stauts": 500}}]}, r"rules\.0\.reply\.stauts: Extra inputs"),
        (
            {"rules": [{"match": {"nth": 0}, "reply": {}}]},
            r"rules\.0\.match\.nth.*: .*greater than or equal to 1",
        ),
        ({"rules": [{"match": {"probability": 2}, "reply": {}}]}, r"less than or equal to 1 \(got '2'\)"),
        ({"rules": [{"reply": {"reset": "later"}}]}, r"'before' or 'after' \(got 'later'\)"),
        ({"rules": [{"reply": {"body": "x", "refusal": "no"}}]}, r"body and refusal exclude each other"),
        ({"rules": [{"reply": {"reset": "after", "half_body": True}}]}, r"reset and half_body exclude"),
    ],
)
def test_a_wrong_scenario_names_place_value_and_expectation(content: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"scenario test: .*{words}"):
        check_scenario(content, source="test")


def test_a_file_that_is_no_yaml_names_itself(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("rules: [")
    with pytest.raises(ConfigurationError, match=r"broken\.yaml cannot be read"):
        read_scenario(path)
    with pytest.raises(ConfigurationError, match=r"absent\.yaml cannot be read"):
        read_scenario(tmp_path / "absent.yaml")


def test_a_file_is_read_with_its_nulls(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("seed: 3\nrules:\n  - reply: {usage: null}\n  - reply: {usage: missing}\n  - reply: {}\n")
    rules = read_scenario(path).rules
    assert [rule.reply.sets("usage") for rule in rules] == [True, True, False]
    assert [rule.reply.usage for rule in rules] == [None, "missing", None]


@pytest.mark.parametrize(
    ("reply", "before"),
    [
        ({}, False),
        ({"status": 500}, False),
        ({"status": 401}, True),
        ({"status": 429}, True),
        ({"status": 429, "admission": "take"}, False),
        ({"status": 500, "admission": "skip"}, True),
        ({"content_filter": "request"}, True),
        ({"content_filter": "reply"}, False),
    ],
    ids=str,
)
def test_answers_a_gateway_gives_come_before_admission(reply: dict[str, Any], before: bool) -> None:
    assert (
        check_scenario({"rules": [{"reply": reply}]}, source="test").rules[0].reply.is_before_admission
        is before
    )
