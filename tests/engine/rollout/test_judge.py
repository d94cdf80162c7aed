from __future__ import annotations

import pytest

from airflow_provider_llmbatch.engine.items import Item, Outcome, Result
from airflow_provider_llmbatch.engine.rollout.judge import judged, questions
from tests.engine.rollout.answers import answer


def said(**winners: tuple[str, str]) -> list[Result]:
    """Return the judge's rows: by unit, who won with the base first, and with the candidate first."""
    rows = []
    for unit, both in winners.items():
        for order, winner in zip(("base-first", "candidate-first"), both, strict=True):
            outcome = Outcome.OK if winner else Outcome.EXHAUSTED
            rows.append(Result(index=0, id=f"{order}/{unit}", outcome=outcome, output={"winner": winner}))
    return rows


def test_each_pair_is_asked_about_in_both_orders():
    items = {"a/1": Item(index=0, id="a/1", vars={"text": "Why?"})}
    base, candidate = [answer("B", "R", unit="a/1")], [answer({"c": 1}, "R", unit="a/1")]
    first, second = questions(items, base, candidate)
    assert first["vars"] == {"question": "Why?", "first": "B", "second": '{"c":1}', "reference": "R"}
    assert (second["vars"]["first"], second["vars"]["second"]) == ('{"c":1}', "B")
    assert [first["id"], second["id"]] == ["base-first/a/1", "candidate-first/a/1"]


def test_pairs_that_lack_a_usable_answer_are_not_asked_about():
    items = {unit: Item(index=0, id=unit, prompt="Why?") for unit in "abc"}
    base = [answer("B", unit="a"), answer(None, outcome=Outcome.EXHAUSTED, unit="b"), answer("B", unit="c")]
    candidate = [answer(None, outcome=Outcome.REFUSED, unit="a"), answer("C", unit="b")]
    assert questions(items, base, candidate) == []


@pytest.mark.parametrize(
    ("item", "asked"),
    [
        ({"prompt": "Why?"}, "Why?"),
        ({"messages": [{"role": "user", "content": "Why?"}]}, "user: Why?"),
        ({"vars": {"a": 1, "b": "x"}}, '{"a":1,"b":"x"}'),
    ],
)
def test_a_question_is_shown_whatever_form_its_item_has(item, asked):
    items = {"a": Item(index=0, id="a", **item)}
    row = questions(items, [answer("B", unit="a")], [answer("C", unit="a")])[0]
    assert (row["vars"]["question"], row["vars"]["reference"]) == (asked, "")


def test_only_who_wins_in_both_orders_has_won():
    found = judged(
        said(
            won=("second", "first"),
            lost=("first", "second"),
            tied=("tie", "tie"),
            placed=("first", "first"),
            half=("second", "tie"),
            cut=("second", ""),
        ),
        ["won", "lost", "tied", "placed", "half", "cut", "never"],
    )
    assert found.scores.candidate == {"won": 1.0, "lost": 0.0, "tied": 0.5, "placed": 0.5, "half": 0.5}
    assert found.scores.base == {"won": 0.0, "lost": 1.0, "tied": 0.5, "placed": 0.5, "half": 0.5}
    assert (found.scores.missing_base, found.scores.missing_candidate) == (2, 2)
    assert found.agreement == pytest.approx(3 / 5)


def test_a_judge_that_always_takes_the_first_answer_decides_nothing_and_is_seen():
    found = judged(said(**{str(n): ("first", "first") for n in range(10)}), map(str, range(10)))
    assert set(found.scores.candidate.values()) == {0.5}
    assert (found.agreement, found.first_share) == (0.0, 1.0)
    assert found.scores.note == (
        "both orders agree in 0% of the pairs, the first answer wins 100% of what is decided"
    )


def test_a_judge_that_never_answered_has_no_figures():
    found = judged([], ["a"])
    assert (found.agreement, found.first_share, found.scores.missing_base) == (None, None, 1)
