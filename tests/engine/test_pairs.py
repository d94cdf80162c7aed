from __future__ import annotations

import pytest

from airflow_provider_llmbatch.engine.pairs import items_of, most_unlike, pairs_of
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.rollout.scores import Scores
from airflow_provider_llmbatch.engine.rollout.sheet import Place, Sheet
from airflow_provider_llmbatch.engine.source import open_source
from tests.engine.rollout.trials import NOW
from tests.engine.rollout.whole import answered

BASE = {"a": 1.0, "b": 0.5, "c": 0.2, "d": 0.4, "only": 1.0}
CANDIDATE = {"a": 0.5, "b": 1.0, "c": 0.2, "d": 0.5, "lost": 0.0}


def scores(**more: bool) -> Scores:
    return Scores(metric="m", paired=True, base=BASE, candidate=CANDIDATE, **more)


@pytest.mark.parametrize(
    ("side", "lower_is_better", "expected"),
    [
        ("either", False, ["a", "b", "d"]),
        ("worse", False, ["a"]),
        ("better", False, ["b", "d"]),
        ("worse", True, ["b", "d"]),
        ("better", True, ["a"]),
    ],
)
def test_what_differs_most_comes_first_on_the_side_that_was_asked_for(side, lower_is_better, expected):
    assert most_unlike(scores(lower_is_better=lower_is_better), side) == expected


def test_pairs_have_their_effect_turned_and_only_answers_of_their_arm(tmp_path):
    path = str(tmp_path / "base")
    answered(path, ["one", "two"], "base", ["a", "b"])
    place = Place(result_path=path, chunk=0)
    # Somebody has given the results of one arm for both.
    sheet = Sheet(scores=(), golden={"base": (place,), "candidate": (place,)})
    pairs = pairs_of(
        sheet, scores(lower_is_better=True), ["a", "d"], {}, graded_by=NOW + 60, open_folder=open_folder
    )
    assert [(pair.id, pair.effect) for pair in pairs] == [("a", 0.5), ("d", pytest.approx(-0.1))]
    assert [{arm: found.output for arm, found in pair.results.items()} for pair in pairs] == [
        {"base": "one"},
        {},
    ]


def test_items_are_found_by_their_ids():
    rows = [{"id": "a", "prompt": "?"}, {"id": "b", "prompt": "!"}, {"id": "b"}]
    assert {id: item.prompt for id, item in items_of(open_source(rows), ["b", "z"]).items()} == {"b": "!"}
