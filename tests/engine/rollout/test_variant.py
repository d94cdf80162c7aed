from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from airflow_provider_llmbatch.engine.items import Item
from airflow_provider_llmbatch.engine.rollout.variant import (
    MISMATCH_P,
    arm_of,
    check_unit,
    mismatch_p,
    place_of,
    unit_of,
)
from airflow_provider_llmbatch.errors import ConfigurationError

UNITS = [f"item:{number}" for number in range(100_000)]


def candidates(rollout: str, rate: float) -> set[str]:
    return {unit for unit in UNITS if arm_of(rollout, unit, rate) == "candidate"}


def test_the_split_is_near_the_rate_and_a_higher_rate_moves_nobody_back():
    low, high, half = (candidates("d/shorter", rate) for rate in (0.05, 0.15, 0.5))
    for found, rate in ((low, 0.05), (high, 0.15), (half, 0.5)):
        assert abs(len(found) / len(UNITS) - rate) < 0.005
    assert low < high < half


def test_two_rollouts_split_the_same_units_independently():
    first, second = candidates("d/shorter", 0.5), candidates("d/kinder", 0.5)
    both = len(first & second)
    table = [[both, len(first) - both], [len(second) - both, len(UNITS) - len(first | second)]]
    assert stats.chi2_contingency(table).pvalue > 0.001


@given(st.text(), st.text(), st.floats(0, 1), st.floats(0, 1))
def test_who_has_the_candidate_keeps_it_at_every_higher_rate(rollout, unit, rate, other):
    low, high = sorted((rate, other))
    assert arm_of(rollout, unit, low) == "base" or arm_of(rollout, unit, high) == "candidate"
    assert (arm_of(rollout, unit, 0.0), arm_of(rollout, unit, 1.0)) == ("base", "candidate")


def test_places_are_pinned_as_answers_of_earlier_versions_must_stay_where_they_are():
    assert place_of("d/shorter", "item:a") == pytest.approx(0.0992669, abs=1e-6)


def test_a_unit_is_the_item_its_chain_or_whoever_a_field_names():
    item = Item(index=0, id="a", group="g", vars={"user": {"id": 7}}, metadata={"tenant": "x"})
    assert unit_of(item, "item") == "item:a"
    assert unit_of(item, "group") == 'group:"g"'
    assert unit_of(item, "vars.user.id") == "vars.user.id:7"
    assert unit_of(item, "metadata.tenant") == 'metadata.tenant:"x"'


def test_items_without_the_field_are_units_of_their_own():
    items = [Item(index=number, id=str(number), metadata=["no mapping"]) for number in range(3)]
    for unit in ("group", "vars.user", "metadata.tenant"):
        assert [unit_of(item, unit) for item in items] == ["item:0", "item:1", "item:2"]


@pytest.mark.parametrize("unit", ["", "id", "vars", "vars.", "params.x"])
def test_what_cannot_be_a_unit_is_refused(unit):
    with pytest.raises(ConfigurationError, match="unit is"):
        check_unit(unit)


def test_a_lost_tenth_of_one_arm_is_a_mismatch_and_chance_is_none():
    assert mismatch_p(9_500, 500, expected=500) == 1.0
    assert mismatch_p(5_000, 4_500, expected=4_750) < MISMATCH_P
    assert mismatch_p(9_500, 520, expected=501) > MISMATCH_P
    expected = stats.chisquare([940, 60], [950, 50]).pvalue
    assert mismatch_p(940, 60, expected=50) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("base", "candidate", "expected", "p"),
    [(10, 0, 0, 1.0), (9, 1, 0, 0.0), (0, 10, 10, 1.0), (0, 0, 0, 1.0)],
)
def test_a_split_that_leaves_nothing_to_chance_is_right_or_wrong(base, candidate, expected, p):
    assert mismatch_p(base, candidate, expected) == p
