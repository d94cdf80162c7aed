from __future__ import annotations

import pytest

from airflow_provider_llmbatch.engine.rollout.gate import move, streaks_after
from airflow_provider_llmbatch.engine.rollout.terms import LADDER, Rules
from airflow_provider_llmbatch.engine.rollout.verdict import Verdict
from airflow_provider_llmbatch.errors import ConfigurationError
from tests.engine.rollout.trials import RULES, said

BETTER, SAME, WORSE, NOT_ENOUGH, NOT_RUN = Verdict


def after(*rounds: Verdict) -> str:
    """Return what becomes of a rollout whose one metric got these verdicts, round by round."""
    streaks: dict[str, int] = {}
    for verdict in rounds:
        comparisons = said(verdict)
        streaks = streaks_after(streaks, comparisons)
        action = move(0.15, streaks, comparisons, RULES, None).action
    return action


def test_the_ladder_is_climbed_rung_by_rung_to_the_top():
    rates = [LADDER[0]]
    for _ in range(5):
        rates.append(move(rates[-1], {}, said(SAME, BETTER), RULES, 0.5).rate)
    assert rates == [0.05, 0.15, 0.5, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("doubt", [NOT_RUN, NOT_ENOUGH, WORSE])
def test_one_metric_that_is_worse_or_unknown_keeps_the_rollout_where_it_is(doubt):
    held = move(0.15, {}, said(BETTER, doubt, SAME), RULES, None)
    assert (held.action, held.rate) == ("hold", 0.15)
    assert doubt in held.why


def test_no_metric_at_all_is_no_reason_to_go_on():
    assert move(0.05, {}, [], RULES, None).action == "hold"


def test_an_uneven_split_keeps_the_rollout_where_it_is():
    held = move(0.15, {}, said(BETTER), RULES, 1e-6)
    assert (held.action, held.rate) == ("hold", 0.15)
    assert "split" in held.why


@pytest.mark.parametrize(
    ("rounds", "action"),
    [
        ((WORSE,), "hold"),
        ((WORSE, WORSE), "pause"),
        ((WORSE, SAME, WORSE), "hold"),
        ((WORSE, BETTER, WORSE), "hold"),
        ((WORSE, NOT_RUN, WORSE), "pause"),
        ((WORSE, NOT_ENOUGH, WORSE), "pause"),
        ((WORSE, SAME), "promote"),
    ],
)
def test_worse_in_two_rounds_running_pauses_and_rounds_that_say_nothing_do_not_count(rounds, action):
    assert after(*rounds) == action


def test_two_metrics_that_are_each_worse_once_pause_nothing():
    streaks = streaks_after({}, said(WORSE, metric="bleu"))
    streaks = streaks_after(streaks, said(SAME, metric="bleu") + said(WORSE))
    assert move(0.05, streaks, said(WORSE), RULES, None).action == "hold"


def test_people_may_keep_the_rungs_to_themselves():
    assert move(0.05, {}, said(SAME), Rules(promotes=False), None).rate == 0.05


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"ladder": ()}, "ladder"),
        ({"ladder": (0.5, 0.15)}, "ladder"),
        ({"ladder": (0.0, 1.0)}, "ladder"),
        ({"ladder": (0.5, 1.5)}, "ladder"),
        ({"thresholds": {"bleu": -0.1}}, "thresholds"),
        ({"thresholds": {"bleu": float("nan")}}, "thresholds"),
        ({"min_new": 1}, "min_new"),
        ({"patience": 0}, "patience"),
        ({"alpha": 0.0}, "alpha"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rules, named):
    with pytest.raises(ConfigurationError, match=named):
        Rules(**rules)
