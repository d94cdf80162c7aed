from __future__ import annotations

from collections import Counter

import pytest

from airflow_provider_llmbatch.engine.items import Outcome, Result
from airflow_provider_llmbatch.engine.review.choose import read_rules
from airflow_provider_llmbatch.errors import ConfigurationError

BAD = frozenset(outcome for outcome in Outcome if outcome.is_reviewable)


def reason(outcome=Outcome.OK, output=None, index=0, **rules) -> str | None:
    given = {"outcomes": BAD, "uncertain": None, "sample": 0.0, **rules}
    return read_rules(**given).reason(Result(index=index, id="i", outcome=outcome, output=output), "seed")


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_item_that_is_not_usable_is_reviewed_unless_a_person_gave_it_up(outcome):
    wanted = "failed" if not outcome.is_good and outcome is not Outcome.SKIPPED else None
    assert reason(outcome) == wanted


def test_only_the_outcomes_that_were_asked_for_are_reviewed():
    only = frozenset({Outcome.INVALID_OUTPUT})
    assert reason(Outcome.INVALID_OUTPUT, outcomes=only) == "failed"
    assert reason(Outcome.REFUSED, outcomes=only) is None


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ({"confidence": 0.6}, "uncertain"),
        ({"confidence": 0.9}, None),
        ({"other": 1}, "uncertain"),
        ("a text", "uncertain"),
        (None, "uncertain"),
    ],
)
def test_a_condition_finds_the_uncertain_and_those_it_cannot_read(output, why):
    assert reason(output=output, uncertain="output.confidence < 0.7") == why


@pytest.mark.parametrize(
    ("condition", "words"), [("output.x <", "no CEL"), ("confidence < 1", "'confidence', which is not known")]
)
def test_a_condition_that_cannot_work_is_refused_before_anything_happens(condition, words):
    with pytest.raises(ConfigurationError, match=words):
        read_rules(BAD, condition, 0.0)


def test_a_sample_has_its_share_and_is_the_same_for_every_try():
    rules = read_rules(frozenset(), None, 0.1)
    drawn = [
        [rules.reason(Result(index=n, id="i", outcome=Outcome.OK), "seed") for n in range(5000)]
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]
    assert 400 < Counter(drawn[0])["sample"] < 600
