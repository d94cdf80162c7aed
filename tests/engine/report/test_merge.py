from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import pytest

from airflow_provider_llmbatch.engine.items import Cost, Outcome, PromptRef, Result, Usage
from airflow_provider_llmbatch.engine.report.account import HeatMap
from airflow_provider_llmbatch.engine.report.merge import EXAMPLES_PER_OUTCOME, merge
from airflow_provider_llmbatch.engine.report.sections import headlines, sections
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.errors import InputError
from tests.engine.report.manifests import PROMPT, STARTED, failed, manifest, plan, second


def test_manifests_add_up_in_any_order() -> None:
    report = merge([second(), manifest(resumed=7)])
    assert report.items == 200
    assert sum(report.counts.values()) == report.items
    assert report.counts[Outcome.OK] == report.good == 180
    assert list(report.counts) == [Outcome.OK, Outcome.INVALID_OUTPUT, Outcome.REFUSED]
    assert report.usage == Usage(prompt=20_000, cached=4_000, completion=2_000, reasoning=600)
    assert report.cost == Cost(usd=Decimal("1.00"))
    assert report.resumed == 7
    assert (report.started_at, report.ended_at) == (STARTED, STARTED + 90)
    assert [part.chunk for part in report.parts] == [0, 1]


def test_one_stopped_part_makes_the_whole_stopped() -> None:
    assert merge([manifest(), second()]).state == "complete"
    assert merge([manifest(), second(state="stopped")]).state == "stopped"


def test_a_manifest_read_back_from_json_reports_the_same() -> None:
    made = manifest()
    assert merge([type(made).from_json(made.to_json())]) == merge([made])


@pytest.mark.parametrize(
    "counts",
    [{}, {Outcome.OK: 99}, {Outcome.OK: 101}, {Outcome.OK: 101, Outcome.REFUSED: -1}],
)
def test_outcomes_that_do_not_make_the_items_are_refused(counts: dict[Outcome, int]) -> None:
    with pytest.raises(InputError, match=r"chunk 0 \(s3://lake/run-1\) does not add up"):
        merge([manifest(counts=counts)])


@pytest.mark.parametrize("resumed", [-1, 101])
def test_more_resumed_than_items_is_refused(resumed: int) -> None:
    with pytest.raises(InputError, match="resumed of 100 items"):
        merge([manifest(resumed=resumed)])


@pytest.mark.parametrize(
    "twin",
    [manifest(), manifest(fingerprint="other"), manifest(result_path="s3://lake/copy")],
    ids=["same", "same path", "same rows"],
)
def test_the_same_chunk_twice_is_refused(twin: Manifest) -> None:
    with pytest.raises(InputError, match="comes twice"):
        merge([manifest(), second(), twin])


def test_different_runs_and_manifests_without_a_fingerprint_can_be_merged() -> None:
    other_run = manifest(result_path="s3://lake/run-2", fingerprint="g0")
    assert merge([manifest(), other_run]).items == 200
    assert merge([manifest(fingerprint=""), second(fingerprint="")]).items == 200


def test_nothing_to_report_on_is_refused() -> None:
    with pytest.raises(InputError, match="no manifest"):
        merge([])


def test_a_part_of_another_plan_is_refused() -> None:
    with pytest.raises(InputError, match="not of this plan, which has 1 chunks"):
        merge([second()], plan=plan(chunks=1))
    other = PromptRef(name="label", version="v4", sha="ef" * 32)
    with pytest.raises(InputError, match=r"label@v4 .* label@v3"):
        merge([manifest(prompt=other)], plan=plan())


def test_the_plan_of_what_was_dispatched_is_compared() -> None:
    whole = merge([manifest(), second()], plan=plan()).planned
    assert whole is not None
    assert (whole.items, whole.prompt_tokens, whole.output_tokens) == (200, 18_000, 2_200)
    assert whole.estimate == plan().estimate
    report = merge([manifest(), second()], plan=plan(chunks=4))
    assert report.planned is not None
    assert (report.planned.items, report.planned.prompt_tokens) == (200, 18_000)
    assert report.planned.estimate is None
    assert any(note.startswith("Chunks 2, 3 of the plan's 4 did not report") for note in report.unknowns)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cost": Cost(unpriced=True)}, "Some calls have no known price (small-1)"),
        ({"usage": Usage(estimated=True)}, "our own count"),
        ({"possible_double_paid": 1}, "1 call may have been charged"),
        ({"possible_double_paid": 12}, "12 calls may have been charged"),
        ({"latency_ms": {}}, "No latency is known for chunk 0."),
        ({"ended_at": 0.0}, "do not say when they ran"),
        ({"items": 50, "counts": {Outcome.OK: 50}}, "Chunk 0 dispatched 50 of the 100 items"),
    ],
)
def test_what_is_not_known_is_said(changes: dict[str, object], words: str) -> None:
    notes = merge([manifest(**changes)], plan=plan(chunks=1)).unknowns
    assert any(words in note for note in notes)
    assert not any(words in note for note in merge([manifest()], plan=plan(chunks=1)).unknowns)


def test_percentiles_of_several_parts_are_a_range_and_said_to_be() -> None:
    report = merge([manifest(), second()])
    assert report.least_and_most("latency_ms", "p95") == (1200.0, 1500.0)
    assert any("cannot be added up" in note for note in report.unknowns)
    assert report.least_and_most("limits", "nothing") is None


def test_a_few_examples_of_each_failure_are_taken_and_no_more_rows_read_than_needed() -> None:
    read = 0

    def rows() -> Iterator[Result]:
        nonlocal read
        for number in range(1_000_000):
            read += 1
            yield failed(number, Outcome.INVALID_OUTPUT if number % 2 else Outcome.REFUSED)

    report = merge([manifest()], results=rows())
    assert [example.outcome for example in report.examples] == [
        *[Outcome.INVALID_OUTPUT] * EXAMPLES_PER_OUTCOME,
        *[Outcome.REFUSED] * EXAMPLES_PER_OUTCOME,
    ]
    assert read == 2 * EXAMPLES_PER_OUTCOME


def test_good_items_are_no_examples() -> None:
    rows = [failed(1, Outcome.OK), failed(2, Outcome.EDITED), failed(3, Outcome.TOO_LONG)]
    assert merge([manifest()], results=rows).examples == ()


@pytest.mark.parametrize(
    ("raw", "output", "shown"),
    [
        ("x" * 5000, None, "x" * 199 + "…"),
        (None, {"a": "größe"}, '{"a": "größe"}'),
        (None, "text", "text"),
        (None, None, ""),
        ("a\nb", {"b": 1}, "a b"),
    ],
)
def test_an_example_shows_the_beginning_of_the_reply(raw: str | None, output: object, shown: str) -> None:
    row = replace(failed(1), raw_output=raw, output=output)
    assert merge([manifest()], results=[row]).examples[0].output == shown


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"start": 0, "step_s": 1, "below_ms": 3, "counts": []},
        {"start": 0, "step_s": 1, "below_ms": [16], "counts": [[1, 2]]},
        {"start": "x", "step_s": 1, "below_ms": [], "counts": []},
    ],
)
def test_a_foreign_heat_map_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(InputError, match="no map of latencies"):
        HeatMap.from_json(data)


def test_the_prompt_stands_in_the_report_with_its_hash() -> None:
    assert merge([manifest()]).parts[0].prompt == PROMPT


def test_a_batch_that_runs_is_not_held_against_the_whole_plan():
    running = second(state="running", counts={Outcome.OK: 10, Outcome.UNSENT: 90}, latency_ms={}, limits={})
    report = merge([manifest(), running], plan=plan())
    assert report.state == "running"
    tables = {section.title: section.rows for section in sections(report)}
    assert ("unsent", "not sent, or not answered yet", "90", "45.0%") in tables["Outcomes"]
    assert {row[3] for row in tables["Tokens"]} == {""}
    assert "Against the plan" not in [row[0] for row in tables["Money"]]
    assert "As of" in [row[0] for row in tables["Made by"]]
    assert headlines(report)[1].note == "planned $1.2500"
    assert any(sentence.startswith("Latency and limits are those") for sentence in report.unknowns)
