"""A bad row costs its own outcome, not the task; and nothing is sent for it."""

from __future__ import annotations

import json

import pytest

from airflow_provider_llmbatch.engine.items import Outcome

GOOD = [json.dumps({"id": f"i{n}", "vars": {"text": f"number {n}"}}) for n in range(19)]

BAD = {
    "broken JSON": ('{"id": "bad", "vars": {"text": ', Outcome.UNRENDERED, ["items.jsonl, line 6"]),
    "no object": ("[1]", Outcome.UNRENDERED, ["items.jsonl, line 6"]),
    "a missing variable": (
        '{"id": "bad", "vars": {"other": "x"}}',
        Outcome.UNRENDERED,
        ["'text'"],
    ),
    "two kinds at once": (
        '{"id": "bad", "vars": {"text": "x"}, "prompt": "y"}',
        Outcome.UNRENDERED,
        ["items.jsonl, line 6", "vars", "prompt"],
    ),
    "parameters of ours": (
        '{"id": "bad", "vars": {"text": "x"}, "params": {"stream": true}}',
        Outcome.UNRENDERED,
        ["'bad'", "'stream'", "leave it out"],
    ),
    "over the window": (
        json.dumps({"id": "bad", "vars": {"text": "word " * 900}}),
        Outcome.TOO_LONG,
        ["'bad'", "prompt tokens", "context window is 800", "Shorten the item"],
    ),
}


@pytest.mark.parametrize(("line", "outcome", "said"), BAD.values(), ids=BAD)
def test_a_bad_row_is_an_outcome_that_names_what_is_wrong(stage, connect, line, outcome, said):
    connect(stage.service.url, context_window=800)
    source = stage.write("items.jsonl", "\n".join([*GOOD[:5], line, *GOOD[5:]]))
    value = stage.run(stage.dispatch(source=source))
    assert value["counts"] == {"ok": 19, outcome.value: 1}
    row = stage.rows()[5]
    assert row.outcome is outcome
    assert [words for words in said if words not in row.error.message] == [], row.error.message
    assert row.attempts == 0
    assert len(stage.service.arrivals()) == 19


def test_the_plan_counts_bad_rows_and_the_chunks_dispatch_to_the_same_outcomes(stage):
    source = stage.write("items.jsonl", "\n".join([*GOOD[:9], "oops", *GOOD[9:]]))
    chunks = stage.run(stage.split(source=source, token_budget=300))
    assert len(chunks) > 1
    tasks = [stage.dispatch(chunk=chunk, max_failed=0.5) for chunk in chunks]
    values = [stage.run(task, map_index=n) for n, task in enumerate(tasks)]
    assert {value["result_path"] for value in values} == {values[0]["result_path"]}
    report = stage.run(stage.report(manifests=values, plan=chunks))
    assert report["counts"] == {"ok": 19, "unrendered": 1}
    assert report["items"] == 20
    assert [row.index for row in stage.rows()] == list(range(20))


def test_a_report_shows_examples_of_what_failed_and_lies_in_both_places(stage):
    stage.service.play({"match": {"contains": "number 3"}, "reply": {"refusal": "I would rather not."}})
    value = stage.run(stage.dispatch(source=stage.items(5), max_failed=1))
    report = stage.run(stage.report(manifests=value, result_path=str(stage.folder / "mine")))
    assert "I would rather not." in (stage.folder / "mine" / "report.md").read_text(encoding="utf-8")
    html = (stage.folder / "mine" / "report.html").read_text(encoding="utf-8")
    assert "I would rather not." in html
    assert (stage.results_path / "d" / "r" / "p" / "report.html").read_text(encoding="utf-8") == html
    assert report["html"] == str(stage.folder / "mine" / "report.html")
