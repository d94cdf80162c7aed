from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_llmbatch.engine import manifests
from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.items import Cost, ItemError, Outcome, PromptRef, Result, Usage
from airflow_provider_llmbatch.engine.recheck import Portion, of_common_ai, of_folder, recheck, rechecked
from airflow_provider_llmbatch.engine.results.folder import Folder, open_folder
from airflow_provider_llmbatch.engine.results.read import results
from airflow_provider_llmbatch.engine.validate.schema import output_schema
from airflow_provider_llmbatch.errors import InputError

ANY = output_schema({"type": "object"})
STRICT = output_schema(
    {"type": "object", "properties": {"score": {"type": "number", "maximum": 1}}, "required": ["score"]}
)
TEXT = output_schema(None)


def result(index: int = 0, outcome: Outcome = Outcome.OK, **fields: Any) -> Result:
    return Result(**{"index": index, "id": f"i{index}", "outcome": outcome, **fields})


def portion(found: Iterable[Result], *, chunk: int = 0, start: int = 0, stop: int = 1) -> Portion:
    return Portion(
        results=found,
        chunk=chunk,
        start=start,
        stop=stop,
        source="made",
        fingerprint="f",
        prompt=PromptRef(name="p", version="1", sha="s"),
        model="m",
    )


def check(source: Portion, folder: Folder, schema: Any = STRICT) -> Any:
    return recheck(source, schema, folder, clocks=Clocks())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return open_folder(str(tmp_path / "checked"))


def test_an_output_that_breaks_the_schema_is_invalid_and_keeps_its_text():
    found = rechecked(result(output={"score": 7}), STRICT)
    assert found.error is not None
    assert (found.outcome, found.output, found.raw_output) == (Outcome.INVALID_OUTPUT, None, '{"score": 7}')
    assert "score" in found.error.message


def test_a_reply_that_was_invalid_becomes_ok_under_a_schema_it_satisfies():
    error = ItemError(kind="schema", message="no")
    before = result(0, Outcome.INVALID_OUTPUT, raw_output='```json\n{"score": 0.5}\n```', error=error)
    found = rechecked(before, STRICT)
    assert (found.outcome, found.output, found.error) == (Outcome.OK, {"score": 0.5}, None)
    assert found.salvage is not None
    assert found.raw_output == before.raw_output


def test_a_good_output_stays_as_it_is_with_what_it_cost():
    before = result(output={"score": 1}, usage=Usage(prompt=5), cost=Cost(unpriced=True), metadata={"k": 1})
    assert rechecked(before, STRICT) == before


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.OK, Outcome.INVALID_OUTPUT}))
def test_rows_without_a_reply_and_decisions_of_people_are_not_touched(outcome):
    before = result(0, outcome, output={"score": 7}, raw_output="x")
    assert rechecked(before, STRICT) is before


@pytest.mark.parametrize(
    ("schema", "output", "now"),
    [
        (TEXT, "plain", "plain"),
        (TEXT, {"a": 1}, '{"a": 1}'),
        (ANY, '{"a": 1}', {"a": 1}),
        (output_schema({"type": "string"}), "plain", "plain"),
    ],
)
def test_text_and_json_are_told_apart_by_the_schema(schema, output, now):
    found = rechecked(result(output=output), schema)
    assert (found.outcome, found.output) == (Outcome.OK, now)


def test_an_empty_reply_stays_invalid():
    error = ItemError(kind="empty", message="The reply has no text.")
    before = result(0, Outcome.INVALID_OUTPUT, error=error)
    assert rechecked(before, STRICT) == before


def test_checked_rows_are_written_in_order_and_counted(folder):
    made = [result(2, output={"score": 0}), result(0, output={"score": 9}), result(1, Outcome.REFUSED)]
    manifest = check(portion(made, stop=4), folder)
    assert manifest.counts == {
        Outcome.OK: 1,
        Outcome.INVALID_OUTPUT: 1,
        Outcome.REFUSED: 1,
        Outcome.UNSENT: 1,
    }
    assert (manifest.items, manifest.usage, manifest.cost) == (4, Usage(), Cost())
    assert manifest.commonest_error.startswith("1 x schema: ")
    assert [(row.index, row.outcome) for row in results(folder)] == [
        (0, Outcome.INVALID_OUTPUT),
        (1, Outcome.REFUSED),
        (2, Outcome.OK),
    ]


def test_checking_again_replaces_what_was_checked_before(folder):
    check(portion([result(output={"score": 9})]), folder)
    manifest = check(portion([result(output={"score": 9})]), folder, ANY)
    assert manifest.counts == {Outcome.OK: 1}
    assert [row.outcome for row in results(folder)] == [Outcome.OK]
    assert manifests.manifests(folder, as_of="")[0].counts == {Outcome.OK: 1}


def test_each_chunk_is_checked_by_itself(folder, tmp_path):
    source = open_folder(str(tmp_path / "source"))
    for chunk, start in ((0, 0), (1, 2)):
        rows = [result(start, output={"score": 0}), result(start + 1, output={"score": chunk * 5})]
        check(portion(rows, chunk=chunk, start=start, stop=start + 2), source, ANY)
    (second,) = of_folder(source, [1])
    assert (second.start, second.stop, second.prompt.name, second.model) == (2, 4, "p", "m")
    assert check(second, folder).counts == {Outcome.OK: 1, Outcome.INVALID_OUTPUT: 1}
    assert [row.index for row in results(folder)] == [2, 3]
    assert [portion.chunk for portion in of_folder(source)] == [0, 1]


def test_results_are_never_written_over(folder):
    check(portion([result(output={"score": 0})]), folder)
    with pytest.raises(InputError, match="would be written over"):
        check(next(of_folder(folder)), folder)


def test_a_chunk_that_is_not_there_is_refused(folder):
    with pytest.raises(InputError, match="no results of chunk 3"):
        next(of_folder(folder, [3]))


def landed(path: Path, *rows: dict[str, Any]) -> Portion:
    usual = {"output": None, "raw_output": None, "error": None, "model": None, "usage": None}
    lines = [
        json.dumps({"custom_id": f"k-{row['index']}", "finish_reason": None, **usual, **row}) for row in rows
    ]
    path.write_text("\n".join(lines) + "\n\n")
    return of_common_ai(str(path), lambda: path.open("rb"))


def test_rows_of_common_ai_are_checked_in_whatever_order_they_come(folder, tmp_path):
    found = landed(
        tmp_path / "rows.jsonl",
        {"index": 2, "status": "success", "output": {"score": 9}},
        {"index": 0, "status": "success", "output": {"score": 0.5}},
        {"index": 1, "status": "invalid_output", "raw_output": 'Here: {"score": 1}'},
        {"index": 3, "status": "expired"},
    )
    manifest = check(found, folder)
    assert manifest.counts == {Outcome.OK: 2, Outcome.INVALID_OUTPUT: 1, Outcome.UNSENT: 1}
    assert [(row.index, row.outcome) for row in results(folder)][:2] == [(0, Outcome.OK), (1, Outcome.OK)]


@pytest.mark.parametrize("line", ["{", "[]", '{"index": 0}', '{"schema_version": 1}'])
def test_a_line_that_is_no_row_of_common_ai_is_named(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(InputError, match=r"rows\.jsonl, line 2: this is no row"):
        of_common_ai(str(path), lambda: path.open("rb"))
