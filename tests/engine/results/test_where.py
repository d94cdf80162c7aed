from __future__ import annotations

import io
import itertools
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.results import rows
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.engine.results.local import LocalFolder
from airflow_provider_llmbatch.engine.results.names import PartName, parse
from airflow_provider_llmbatch.engine.results.resume import files_of, rows_of
from airflow_provider_llmbatch.engine.results.where import Where
from airflow_provider_llmbatch.errors import StoreError
from tests.engine.results.made import result

OK, BAD, UNSENT, EDITED = Outcome.OK, Outcome.BAD_REQUEST, Outcome.UNSENT, Outcome.EDITED


def part_of(*made: bytes) -> io.BytesIO:
    return io.BytesIO(b"".join(made))


def row(index: int, outcome: Outcome = OK, **fields: object) -> bytes:
    return rows.encode(result(index, outcome, **fields))


def put(folder: Folder, name: PartName, *lines: bytes) -> None:
    folder.put(str(name), iter(lines))


@pytest.mark.parametrize(
    ("one", "other", "counts"),
    [
        pytest.param((1, OK, 0), (2, OK, 0), 1, id="the lowest fence"),
        pytest.param((1, UNSENT, 0), (2, OK, 0), 2, id="a final outcome before the lowest fence"),
        pytest.param((1, UNSENT, 0), (2, UNSENT, 0), 1, id="the lowest fence among unfinished"),
        pytest.param((1, OK, 0), (2, EDITED, 1), 2, id="the highest round"),
        pytest.param((1, EDITED, 2), (2, OK, 1), 1, id="the highest round, wherever it is"),
        pytest.param((1, OK, 0), (2, UNSENT, 1), 2, id="the highest round before a final outcome"),
        pytest.param((0, OK, 0), (3, OK, 0), 0, id="what was put together before late rows"),
        pytest.param((0, UNSENT, 0), (3, OK, 0), 3, id="a late row before an unfinished one"),
    ],
)
@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "the later part first"])
def test_of_two_rows_of_an_item_one_counts(one, other, counts, backwards, tmp_path: Path):
    folder = LocalFolder(tmp_path)
    for fence, outcome, round_ in (one, other):
        put(folder, PartName(0, fence, 0), row(0, outcome, round=round_, credential=f"of try {fence}"))
    where = Where(0, 1)
    sizes = files_of(folder, 0)[0]
    for part in sorted(sizes, reverse=backwards):
        where.update(folder, {part: sizes[part]})
    assert where.fence(0) == counts
    ((_, line),) = where.lines(folder)
    assert json.loads(line)["credential"] == f"of try {counts}"


ROW = st.tuples(st.integers(0, 5), st.sampled_from([OK, BAD, UNSENT, EDITED]), st.integers(0, 2))


@settings(max_examples=60)
@given(parts=st.lists(st.lists(ROW, max_size=8), min_size=1, max_size=4), order=st.randoms())
def test_the_rows_that_count_do_not_depend_on_when_parts_are_read(parts, order, tmp_path_factory):
    folder = LocalFolder(tmp_path_factory.mktemp("parts"))
    best: dict[int, tuple] = {}
    for fence, made in enumerate(parts):
        lines = []
        for place, (index, outcome, round_) in enumerate(made):
            lines.append(row(index, outcome, round=round_, request_id=f"{fence}/{place}"))
            rank = (-round_, not outcome.is_final, fence, place)
            best[index] = min(best.get(index, rank), rank)
        put(folder, PartName(0, fence, 0), *lines)
    where, sizes = Where(0, 6), files_of(folder, 0)[0]
    shuffled = list(sizes)
    order.shuffle(shuffled)
    for part in shuffled:
        where.update(folder, {part: sizes[part]})
    found = {index: json.loads(line)["request_id"] for index, line in where.lines(folder)}
    assert found == {index: f"{rank[2]}/{rank[3]}" for index, rank in sorted(best.items())}
    assert list(found) == sorted(found)


def test_lines_come_in_index_order_over_parts_that_are_not(reopen: Callable[[], Folder]):
    folder = reopen()
    for fence, indexes in ((1, (7, 0, 5)), (2, (9, 2)), (3, (1, 8, 3, 6, 4))):
        put(folder, PartName(0, fence, 0), *map(row, indexes))
    where = rows_of(folder, 0, 0, 10)
    assert [index for index, _ in where.lines(folder)] == list(range(10))
    assert [json.loads(line)["id"] for _, line in where.lines(folder, start=6)] == [
        "item-6",
        "item-7",
        "item-8",
        "item-9",
    ]


def test_lines_can_be_only_those_that_ended_so():
    where, part = Where(0, 4), part_of(row(0), row(1, BAD), row(2, UNSENT), row(3))
    where.add(PartName(0, 1, 0), part)

    class Opened:
        read_ahead = 0

        def open(self, name: str) -> io.BytesIO:
            return io.BytesIO(part.getvalue())

    assert [index for index, _ in where.lines(Opened(), keep=[BAD, UNSENT])] == [1, 2]


def test_a_torn_last_line_is_left_and_read_once_it_is_whole():
    where, first, second = Where(0, 2), row(0), row(1)
    where.add(PartName(0, 1, 0), part_of(first, second[:-10]))
    assert (where.outcome(0), where.outcome(1)) == (OK, None)
    assert where.read == {PartName(0, 1, 0): len(first)}
    where.add(PartName(0, 1, 0), part_of(first, second))
    assert where.outcome(1) is OK


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        b"[1]\n",
        b"null\n",
        b'{"schema_version":1,"index":0,\n',
        b"\xff\xfe\n",
        b'{"index":"0","outcome":1,"round":0}\n',
    ],
    ids=repr,
)
def test_a_whole_line_that_is_no_row_is_never_skipped(line: bytes):
    with pytest.raises(StoreError, match=r"part-00000-1-0\.jsonl has a line that is no result row, at byte"):
        Where(0, 2).add(PartName(0, 1, 0), part_of(row(0), line, row(1)))


def test_a_row_of_an_unknown_outcome_is_not_taken_for_absent():
    strange = row(0).replace(b'"outcome":"ok"', b'"outcome":"guessed"')
    with pytest.raises(StoreError, match="another version"):
        Where(0, 1).add(PartName(0, 1, 0), part_of(strange))


def test_a_row_whose_keys_stand_in_another_order_is_read_as_well():
    value = json.loads(row(3, BAD))
    where = Where(0, 4)
    where.add(PartName(0, 1, 0), part_of(json.dumps(dict(reversed(value.items()))).encode() + b"\n"))
    assert where.outcome(3) is BAD


def test_an_id_that_looks_like_a_row_does_not_deceive():
    where = Where(0, 2)
    where.add(PartName(0, 1, 0), part_of(row(1, BAD, id='","outcome":"ok","round":9,"index":0,"')))
    assert (where.outcome(0), where.outcome(1)) == (None, BAD)


def test_rows_of_another_chunk_are_refused():
    with pytest.raises(StoreError, match=r"holds item 12, outside of its chunk \(0 to 9\)"):
        Where(0, 10).add(PartName(0, 1, 0), part_of(row(12)))


def test_counts_add_up_and_an_item_without_a_row_is_unsent():
    where = Where(10, 20)
    where.add(PartName(0, 1, 0), part_of(row(10), row(11, BAD), row(12, UNSENT), row(13)))
    assert where.counts() == {OK: 2, BAD: 1, UNSENT: 7}
    assert sum(where.counts().values()) == 10


def test_an_item_takes_eight_bytes_however_long_its_row():
    tracemalloc.start()
    where = Where(0, 100_000)
    lines = b"".join(row(index, metadata="x" * 200) for index in range(0, 100_000, 1000))
    before = tracemalloc.get_traced_memory()[0]
    where.add(PartName(0, 1, 0), io.BytesIO(lines))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown - before < 10_000
    assert grown - len(lines) < 100_000 * 9


def test_a_part_that_cannot_be_pointed_into_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airflow_provider_llmbatch.engine.results.where.MOST_PARTS", 2)
    where = Where(0, 10)
    for n in range(2):
        where.add(PartName(0, 1, n), part_of(row(n)))
    with pytest.raises(StoreError, match="Split the source into more chunks"):
        where.add(PartName(0, 1, 2), part_of(row(2)))


def test_only_names_of_parts_and_ledgers_are_read():
    names = ("part-00003-12-4.jsonl", "ledger-00003-12-4.jsonl")
    assert [str(parse(name)) for name in names] == list(names)
    strange = ("part-3-12.jsonl", "part-00003-12-4.jsonl.draft", ".part-00003-12-4.jsonl", "report.html", "")
    assert list(map(parse, strange)) == [None] * len(strange)


def test_names_sort_by_chunk_then_fence_then_number():
    named = [PartName(*key) for key in itertools.product((0, 1), (0, 2, 10), (0, 9, 11))]
    assert sorted(reversed(named)) == named
