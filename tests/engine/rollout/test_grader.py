from __future__ import annotations

from decimal import Decimal

import pytest

from airflow_provider_llmbatch.engine.items import Cost, Outcome
from airflow_provider_llmbatch.engine.rollout.facts import CostUsd, LatencyMs, Refusal, Truncation, Validity
from airflow_provider_llmbatch.engine.rollout.fields import FieldF1
from airflow_provider_llmbatch.engine.rollout.grader import grader_of, scored
from airflow_provider_llmbatch.engine.rollout.texts import Bleu, TokenF1
from airflow_provider_llmbatch.errors import ConfigurationError
from tests.engine.rollout.answers import Broken, Endless, Forgetful, Length, answer, score

HERE = "tests.engine.rollout.answers"


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        ({"a": 1, "b": "x y"}, {"a": 1.0, "b": " x  y"}, 1.0),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, 0.5),
        ({"a": [1, 2, 3]}, {"a": [3, 1]}, 0.8),
        ({"a": [1, 1]}, {"a": [1]}, 2 / 3),
        ({"a": True}, {"a": 1}, 0.0),
        ({"a": {"b": {"c": "x"}}}, {"a": {"b": {"c": "x"}}, "d": None}, 1.0),
        ({"a": []}, {"a": []}, 1.0),
        ({"a": []}, {"a": [1]}, 0.0),
        ({}, {}, 1.0),
        ({}, {"a": None}, 0.0),
        ("x", "x", 1.0),
    ],
)
def test_objects_are_compared_field_by_field(output, reference, expected):
    assert score(FieldF1(), output, reference) == pytest.approx(expected)


FACTS = {
    Outcome.OK: (1.0, 0.0, 0.0),
    Outcome.INVALID_OUTPUT: (0.0, 0.0, 0.0),
    Outcome.TRUNCATED: (0.0, 0.0, 1.0),
    Outcome.REFUSED: (0.0, 1.0, 0.0),
    Outcome.CONTENT_FILTERED: (0.0, 1.0, 0.0),
    Outcome.TOO_LONG: (0.0, None, None),
    Outcome.UNRENDERED: (0.0, None, None),
    Outcome.BAD_REQUEST: (0.0, None, None),
    Outcome.EXHAUSTED: (None, None, None),
    Outcome.UNSENT: (None, None, None),
    Outcome.EDITED: (None, None, None),
    Outcome.ACCEPTED: (None, None, None),
    Outcome.SKIPPED: (None, None, None),
}


@pytest.mark.parametrize("outcome", list(Outcome))
def test_each_outcome_says_whether_an_answer_was_valid_refused_or_cut_off(outcome):
    graders = (Validity(), Refusal(), Truncation())
    assert tuple(score(grader, None, None, outcome=outcome) for grader in graders) == FACTS[outcome]


def test_cost_and_latency_are_of_what_was_asked_and_priced():
    paid = {"cost": Cost(usd=Decimal("0.25")), "call_ms": 120.0}
    assert (score(CostUsd(), "x", None, **paid), score(LatencyMs(), "x", None, **paid)) == (0.25, 120.0)
    reused = {**paid, "saved_usd": Decimal("0.25")}
    assert (score(CostUsd(), "x", None, **reused), score(LatencyMs(), "x", None, **reused)) == (None, None)
    assert score(CostUsd(), "x", None, cost=Cost(usd=Decimal(1), unpriced=True)) is None
    assert score(LatencyMs(), None, None, outcome=Outcome.EXHAUSTED, **paid) is None


def test_items_of_a_unit_count_as_one():
    base = [answer("x", unit="u"), answer("xxx", unit="u"), answer("x", unit="v")]
    found = scored(Length(), base, [answer("xx", unit="w")], paired=False)
    assert (found.base, found.candidate) == ({"u": 2.0, "v": 1.0}, {"w": 2.0})
    assert found.lower_is_better


def test_what_one_arm_lacks_is_missing_there():
    base = [answer("yes", "yes", unit=str(n)) for n in range(5)]
    candidate = [answer("yes", "yes", unit=str(n)) for n in range(3)]
    candidate.append(answer(None, "yes", Outcome.EXHAUSTED, unit="3"))
    found = scored(TokenF1(), base, candidate, paired=True)
    assert (found.missing_base, found.missing_candidate, len(found.candidate)) == (0, 2, 3)
    alone = scored(TokenF1(), base, candidate, paired=False)
    assert (alone.missing_base, alone.missing_candidate) == (0, 1)


@pytest.mark.parametrize(
    ("grader", "why"),
    [
        (Broken(), "OSError: no such model"),
        (Forgetful(), "2 answers got 0 scores"),
        (Endless(), "no finite number"),
    ],
)
def test_a_grader_that_fails_is_told_and_grades_nothing(grader, why):
    found = scored(grader, [answer("x"), answer("y")], [answer("z")], paired=False)
    assert why in found.failure
    assert (found.base, found.missing_base, found.missing_candidate) == ({}, 2, 1)


def test_graders_are_found_by_name_and_those_of_others_by_path():
    assert grader_of("token_f1") == TokenF1()
    assert grader_of({"grader": "bleu", "language": "zh"}) == Bleu(language="zh")
    assert grader_of({"grader": f"{HERE}:Length", "most": 3}) == Length(most=3)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("rouge", "none of ours"),
        ({"grader": "bleu", "langauge": "zh"}, "langauge"),
        ("tests.nowhere:Length", "tests.nowhere"),
        (f"{HERE}:Nothing", "Nothing"),
        ("collections:OrderedDict", "no 'name'"),
        ({}, "none of ours"),
    ],
)
def test_a_grader_that_is_not_there_is_refused_by_name(spec, why):
    with pytest.raises(ConfigurationError, match=why):
        grader_of(spec)
