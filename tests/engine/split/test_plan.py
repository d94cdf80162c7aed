from __future__ import annotations

import hashlib
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.compose import Composer
from airflow_provider_llmbatch.engine.identity import UniqueIds
from airflow_provider_llmbatch.engine.items import Item, Request, Result
from airflow_provider_llmbatch.engine.prompt import inline_prompt
from airflow_provider_llmbatch.engine.source import Source, open_source
from airflow_provider_llmbatch.engine.split import plan
from airflow_provider_llmbatch.engine.summary import Plan
from airflow_provider_llmbatch.engine.tokens.count import TokenCounter
from airflow_provider_llmbatch.errors import ConfigurationError, InputError

PROMPT = inline_prompt("", "{{ text }}")


def of_size(item: Item) -> Request:
    """Make a request whose tokens the item itself names."""
    return Request(
        index=item.index,
        id=item.id,
        model="m",
        messages=[],
        params={},
        prompt=PROMPT.ref,
        prompt_tokens=item.vars["in"],
        output_tokens=item.vars["out"],
    )


def sized(*sizes: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"vars": {"in": size, "out": 0}, **fields} for size in sizes]


def made(source: Source, compose: Callable[[Item], Request | Result] = of_size, **options: Any) -> Plan:
    settings = {"source_uri": source.uri, "prompt": PROMPT.ref, "model": "m", "token_budget": 100, **options}
    with UniqueIds(source.uri) as ids:
        return plan(source.rows, compose, ids=ids, **settings)


def planned(rows: list[dict[str, Any]], **options: Any) -> Plan:
    return made(open_source(rows), **options)


def spans(of: Plan) -> list[tuple[int, int]]:
    return [(chunk.start, chunk.stop) for chunk in of.chunks]


def test_items_are_cut_into_contiguous_chunks_within_the_budget():
    result = planned([{"vars": {"in": 30, "out": 10}} for _ in range(5)])
    assert spans(result) == [(0, 2), (2, 4), (4, 5)]
    assert [chunk.number for chunk in result.chunks] == [0, 1, 2]
    assert (result.items, result.bad_items, result.prompt_tokens, result.output_tokens) == (5, 0, 150, 50)
    assert [(c.prompt_tokens, c.output_tokens) for c in result.chunks] == [(60, 20), (60, 20), (30, 10)]


def test_an_item_over_the_budget_has_a_chunk_of_its_own():
    assert spans(planned(sized(10, 500, 10, 10))) == [(0, 1), (1, 2), (2, 4)]


def test_the_budget_is_raised_to_keep_to_the_number_of_chunks_and_this_is_said():
    notes: list[str] = []
    result = planned(sized(*[50] * 20), max_chunks=4, on_note=notes.append)
    assert spans(result) == [(0, 5), (5, 10), (10, 15), (15, 20)]
    assert notes == [
        "The token budget of 100 would need more than 4 chunks, so chunks of up to 250 tokens were made; "
        "raise max_chunks to keep to the budget."
    ]


def test_nothing_is_said_when_the_budget_holds():
    planned(sized(50, 50), on_note=pytest.fail)


def test_balanced_chunks_have_nearly_equal_tokens():
    result = planned(sized(*[10] * 25), strategy="balanced")
    tokens = [chunk.prompt_tokens for chunk in result.chunks]
    assert len(tokens) == 3
    assert max(tokens) - min(tokens) <= 10


def group(name: str, *sizes: int) -> list[dict[str, Any]]:
    return [{**row, "group": name, "seq": n} for n, row in enumerate(sized(*sizes))]


@pytest.mark.parametrize("strategy", ["sequential", "balanced"])
def test_a_chain_is_never_cut(strategy):
    rows = [*sized(30), *group("a", 20, 20, 20, 20), *group("b", 10, 10), *sized(60)]
    result = planned(rows, strategy=strategy, token_budget=90)
    cuts = {chunk.start for chunk in result.chunks}
    assert cuts <= {0, 1, 5, 7}
    assert len(cuts) > 1


def test_later_turns_of_a_chain_carry_the_earlier_ones():
    rows = [{"vars": {"in": 30, "out": 5}, "group": "a", "seq": n} for n in range(3)]
    result = planned(rows, fixed_tokens=10, token_budget=1000)
    assert result.prompt_tokens == 30 + (30 + 25) + (30 + 50)
    assert result.output_tokens == 15


def test_a_scattered_group_is_refused_with_its_rows():
    with pytest.raises(InputError, match=r"group 'a' begins at item 0 .* and again at item 2"):
        planned([*group("a", 1), *group("b", 1), *group("a", 1)])


@pytest.mark.parametrize("seqs", [(1, 0), (0, 0)])
def test_a_chain_out_of_order_is_refused_with_its_rows(seqs):
    rows = [{**row, "group": "a", "seq": seq} for row, seq in zip(sized(1, 1), seqs, strict=True)]
    with pytest.raises(InputError, match=r"items 0 and 1 .* of group 'a' have seq . and .; order each group"):
        planned(rows)


def test_a_bad_row_is_counted_and_does_not_break_the_chain_around_it():
    rows = [*group("a", 40), {"prompt": ""}, *[{**r, "seq": 1} for r in group("a", 40)], *sized(60)]
    result = planned(rows)
    assert spans(result) == [(0, 3), (3, 4)]
    assert (result.items, result.bad_items) == (4, 1)


def test_rows_that_cannot_be_sent_take_no_tokens_but_stay_in_the_plan():
    composer = Composer(PROMPT, "gpt-4o", TokenCounter.for_model("gpt-4o"), window=100)
    rows = [{"vars": {"text": "fine"}}, {"vars": {}}, {"vars": {"text": "long " * 500}}]
    result = made(open_source(rows), composer.compose)
    assert spans(result) == [(0, 3)]
    assert result.items == 3
    assert result.prompt_tokens + result.output_tokens == 100


def test_ids_that_come_twice_are_refused():
    with pytest.raises(InputError, match=r"rows: items 0 and 2 .* same id 'a'"):
        planned([{**row, "id": name} for row, name in zip(sized(1, 1, 1), "aba", strict=True)])


def test_a_source_without_rows_is_refused(tmp_path):
    path = tmp_path / "blank.jsonl"
    path.write_text("\n\n")
    with pytest.raises(InputError, match=r"blank.jsonl holds no items"):
        made(open_source(path))


@pytest.mark.parametrize("options", [{"strategy": "random"}, {"token_budget": 0}, {"max_chunks": 0}])
def test_settings_that_mean_nothing_are_refused(options):
    with pytest.raises(ConfigurationError):
        planned(sized(1), **options)


def test_each_chunk_can_be_read_and_checked_by_itself(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text("".join(f"\n{json.dumps(row)}\n" for row in sized(*[30] * 10)))
    source = open_source(path)
    for chunk in made(source).chunks:
        rows = list(source.rows(start=chunk.start, offset=chunk.offset, stop=chunk.stop))
        assert [row.item.index for row in rows] == list(range(chunk.start, chunk.stop))
        assert hashlib.sha256(b"".join(row.raw + b"\n" for row in rows)).hexdigest() == chunk.sha


@pytest.mark.parametrize("second", [1, 3], ids=["shorter", "longer"])
def test_a_source_that_changes_meanwhile_is_refused(second):
    sources = iter([open_source(sized(*[60] * 2)), open_source(sized(*[60] * second))])
    with UniqueIds("rows") as ids, pytest.raises(InputError, match="rows changed while it was being split"):
        plan(
            lambda: next(sources).rows(),
            of_size,
            ids=ids,
            source_uri="rows",
            prompt=PROMPT.ref,
            model="m",
            token_budget=100,
        )


def test_a_plan_survives_its_json_form():
    result = planned(sized(60, 60))
    assert Plan.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_memory_grows_by_at_most_sixteen_bytes_an_item(tmp_path):
    def peak(count: int) -> int:
        path = tmp_path / f"{count}.jsonl"
        path.write_text('{"vars": {"in": 10, "out": 2}}\n' * count)
        source = open_source(path)
        tracemalloc.start()
        try:
            # The smallest budget: without a bound on chunks each item would be one.
            assert made(source, token_budget=1).items == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # Wide apart, so that garbage which waits for its collection does not count.
    peak(100)
    assert (peak(110_000) - peak(10_000)) / 100_000 <= 16


def test_ten_thousand_items_are_planned_in_seconds(tmp_path):
    """A hundred thousand may take 15 s; the bound here leaves room for a busy machine."""
    path = tmp_path / "items.jsonl"
    text = "The printer on the second floor does not print since Monday. " * 10
    path.write_text("".join(json.dumps({"vars": {"text": f"{n} {text}"}}) + "\n" for n in range(10_000)))
    composer = Composer(PROMPT, "gpt-4o", TokenCounter.for_model("gpt-4o"))
    started = time.process_time()
    assert made(open_source(path), composer.compose, token_budget=100_000).items == 10_000
    assert time.process_time() - started < 6
