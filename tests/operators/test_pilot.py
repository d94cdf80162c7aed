"""A pilot sends the first few items; without a sample, the task goes on with the rest."""

from __future__ import annotations

from decimal import Decimal

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_llmbatch.engine.summary import Manifest

PRICES = {"m-1": {"input": "1", "output": "2"}}


@pytest.fixture
def place(stage, connect):
    connect(stage.service.url, prices=PRICES)
    return {"result_path": str(stage.folder / "shared"), "source": stage.items(30)}


def test_a_pilot_is_a_complete_dispatch_that_says_what_the_rest_would_cost(stage, place):
    value = stage.run(stage.dispatch(**place, sample="5"))
    manifest = Manifest.from_json(value)
    assert (manifest.state, manifest.items, manifest.counts) == ("complete", 5, {"ok": 5})
    assert manifest.pilot_of == 30
    assert Decimal(value["rest_usd"]) == manifest.cost.usd / 5 * 25 > 0


def test_the_second_run_keeps_the_results_of_the_pilot_and_pays_for_the_rest(stage, place):
    stage.run(stage.dispatch(**place, sample=5))
    pilot = [(row.index, row.request_id) for row in rows(place)]
    value = stage.run(stage.dispatch(**place), run_id="second")
    assert (value["counts"], value["resumed"], value["pilot_of"]) == ({"ok": 30}, 5, 0)
    assert "rest_usd" not in value
    assert len(stage.service.arrivals()) == 30
    assert [(row.index, row.request_id) for row in rows(place)][:5] == pilot
    assert [row.index for row in rows(place)] == list(range(30))


def test_a_larger_pilot_holds_the_smaller_one(stage, place):
    stage.run(stage.dispatch(**place, sample=5))
    value = stage.run(stage.dispatch(**place, sample=12), run_id="second")
    assert (value["items"], value["resumed"], value["pilot_of"]) == (12, 5, 30)
    assert len(stage.service.arrivals()) == 12


def test_a_retry_of_a_pilot_resumes_it(stage, place):
    stage.run(stage.dispatch(**place, sample=5))
    value = stage.run(stage.dispatch(**place, sample=5), try_number=2)
    assert (value["counts"], value["resumed"]) == ({"ok": 5}, 5)


def test_a_sample_that_holds_the_whole_source_is_no_pilot(stage, place):
    value = stage.run(stage.dispatch(**place, sample=30))
    assert (value["items"], value["pilot_of"]) == (30, 0)


def test_the_pilot_of_a_plan_is_of_its_first_items_whatever_their_chunks(stage, place):
    def plan(run_id: str):
        return stage.run(stage.split(source=place["source"], token_budget=200, max_chunks=4), run_id=run_id)

    def dispatched(run_id: str, **sample):
        path = place["result_path"]
        return [
            stage.run(
                stage.dispatch(chunk=chunk, result_path=path, **sample), run_id=run_id, map_index=number
            )
            for number, chunk in enumerate(plan(run_id))
        ]

    first = dispatched("first", sample=12)
    assert len(first) == 4
    assert sum(value["items"] for value in first) == 12 == len(stage.service.arrivals())
    assert sum(value["pilot_of"] or value["items"] for value in first) == 30
    stage.run(stage.report(manifests=first, plan=plan("first")))
    second = dispatched("second")
    assert sum(value["counts"]["ok"] for value in second) == 30 == len(stage.service.arrivals())
    assert sum(value["resumed"] for value in second) == 12


def test_the_report_of_a_pilot_says_so(stage, place):
    value = stage.run(stage.dispatch(**place, sample=5))
    report = stage.run(stage.report(manifests=value))
    with open(report["markdown"]) as file:
        text = file.read()
    assert "A pilot of 5 of 30 items; at its cost the other 25 take about $0.00" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": {"system": "Be brief.", "user": "{{ text }}"}}, "answer another input"),
        ({"sample": 3}, "are of items 0 to 4; this sample ends at 2"),
        ({"on_existing": "fail"}, "on_existing is 'fail'"),
    ],
)
def test_what_does_not_go_with_a_pilot_is_refused_before_anything_is_paid(stage, place, change, words):
    stage.run(stage.dispatch(**place, sample=5))
    with pytest.raises(AirflowFailException, match=words):
        stage.run(stage.dispatch(**{**place, **change}), run_id="second")
    assert len(stage.service.arrivals()) == 5


def test_rows_that_changed_after_the_pilot_are_refused(stage, place):
    stage.run(stage.dispatch(**place, sample=5))
    stage.items(31)
    with pytest.raises(AirflowFailException, match="rows or params"):
        stage.run(stage.dispatch(**place), run_id="second")


def test_a_chain_that_the_pilot_has_cut_goes_on_with_its_turns(stage, place):
    turn = '{{"id": "t{n}", "prompt": "turn {n}", "group": "g", "seq": {n}}}\n'
    place["source"] = stage.write("turns.jsonl", "".join(turn.format(n=n) for n in range(4)))
    place["prompt"] = {"system": "Be brief."}
    stage.run(stage.dispatch(**place, sample=2))
    value = stage.run(stage.dispatch(**place), run_id="second")
    assert (value["counts"], value["resumed"]) == ({"ok": 4}, 2)
    assert len(stage.service.arrivals()) == 4


def rows(place):
    from airflow_provider_llmbatch.engine.results.folder import open_folder
    from airflow_provider_llmbatch.engine.results.read import results

    return list(results(open_folder(place["result_path"], read_only=True)))
