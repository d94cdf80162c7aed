from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal

import pytest

from airflow_provider_llmbatch.engine.items import Cost, ItemError, Outcome, Usage
from airflow_provider_llmbatch.engine.results import ledger, read, resume
from airflow_provider_llmbatch.engine.results.folder import Folder
from airflow_provider_llmbatch.errors import InputError, StoreError
from tests.engine.results.made import COST, USAGE, answers, book, finish, opened, result, send

Reopen = Callable[[], Folder]


def ended(folder: Folder) -> dict[int, Outcome]:
    """Return how the items with a row have ended, in the order in which they are read."""
    return {one.index: one.outcome for one in read.results(folder)}


def test_a_try_finds_what_the_tries_before_it_have_finished(reopen: Reopen):
    first = opened(reopen())
    for index in (4, 0, 2):
        finish(first, index)
    first.close()

    second = opened(reopen())
    assert [index for index in range(10) if second.where.is_final(index)] == [0, 2, 4]
    assert second.row(2) == result(2)
    finish(second, 1)
    second.close()

    assert ended(reopen()) == dict.fromkeys((0, 1, 2, 4), Outcome.OK)


def test_putting_the_parts_together_changes_no_row(reopen: Reopen):
    for indexes in ((4, 0, 2), (9, 1), (3, 8, 7, 5, 6)):
        store = opened(reopen())
        for index in indexes:
            finish(store, index)
        store.close()
    before = list(read.lines(reopen()))

    last = opened(reopen())
    last.close()
    where = last.compact()

    folder = reopen()
    parts, _ = resume.files_of(folder, 0)
    assert [(part.fence, part.n) for part in parts] == [(0, 4)]
    assert list(read.lines(folder)) == before
    assert [line for _, line in where.lines(folder)] == before
    assert where.counts() == {Outcome.OK: 10}
    with folder.open(str(next(iter(parts)))) as file:
        assert [json.loads(line)["index"] for line in file] == list(range(10))


def test_nothing_is_written_again_when_there_is_nothing_new(reopen: Reopen):
    store = opened(reopen())
    finish(store, 0)
    store.close()
    store.compact()
    parts_before, _ = resume.files_of(reopen(), 0)

    again = opened(reopen())
    again.close()
    again.compact()
    assert resume.files_of(reopen(), 0)[0] == parts_before


def test_rows_after_a_compaction_are_put_together_with_those_before(reopen: Reopen):
    for indexes in ((3, 1), (2, 0), (4,)):
        store = opened(reopen(), answers(5))
        for index in indexes:
            finish(store, index)
        store.close()
        store.compact()
    assert list(ended(reopen())) == [0, 1, 2, 3, 4]
    assert len(resume.files_of(reopen(), 0)[0]) == 1


def test_an_unfinished_item_is_tried_again_and_its_better_row_counts(reopen: Reopen):
    first = opened(reopen(), answers(1))
    finish(first, 0, Outcome.EXHAUSTED, error=ItemError(kind="timeout", message="No answer."))
    first.close()
    first.compact()

    second = opened(reopen(), answers(1))
    assert second.where.outcome(0) is Outcome.EXHAUSTED
    assert not second.where.is_final(0)
    finish(second, 0)
    second.close()
    second.compact()
    assert ended(reopen()) == {0: Outcome.OK}


def test_the_ledger_adds_up_over_tries(reopen: Reopen):
    first = opened(reopen())
    finish(first, 0)
    send(first, 1)
    book(first, 1, status=503, usage=None, cost=Cost())
    send(first, 1, attempt=2)
    book(first, 1, attempt=2, status=None, usage=None, cost=Cost(), maybe_paid=True)
    first.close()
    first.compact()

    second = opened(reopen())
    assert second.totals.settled == 3
    assert (second.totals.usage, second.totals.cost) == (USAGE, COST)
    assert second.possible_double_paid == 1
    finish(second, 1, usage=Usage(prompt=1, completion=1, estimated=True), cost=Cost(unpriced=True))
    assert second.totals.usage == USAGE + USAGE
    second.close()
    assert resume.spent(reopen())[1].usd == 2 * COST.usd


def test_money_in_the_ledger_is_exact(reopen: Reopen):
    store = opened(reopen())
    tiny = Cost(usd=Decimal("0.0000001"))
    for index in range(10):
        send(store, index)
        book(store, index, cost=tiny)
    store.close()
    assert resume.spent(reopen())[1].usd == Decimal("0.000001")
    assert opened(reopen()).totals.cost == Cost(usd=Decimal("0.000001"))


def test_what_was_spent_is_that_of_all_chunks(reopen: Reopen):
    for chunk in range(3):
        store = opened(reopen(), answers(chunk=chunk))
        finish(store, chunk)
        store.close()
    assert resume.spent(reopen())[1].usd == 3 * COST.usd


def test_a_call_that_a_kill_cut_off_counts_as_possibly_paid_once(reopen: Reopen):
    first = opened(reopen())
    send(first, 0)
    send(first, 1)
    book(first, 1)
    first.close()
    for _ in range(3):
        store = opened(reopen())
        assert store.possible_double_paid == 1
        store.close()


def test_a_call_cut_off_in_every_try_counts_once_for_each(reopen: Reopen):
    for tries in range(1, 4):
        store = opened(reopen())
        assert store.possible_double_paid == tries - 1
        send(store, 0)
        store.close()


def test_a_reply_whose_booking_a_kill_prevented_is_booked_by_the_next_try(reopen: Reopen):
    first = opened(reopen())
    send(first, 0)
    first.add(result(0))
    first.close()
    for _ in range(3):
        store = opened(reopen())
        assert store.possible_double_paid == 0
        assert (store.totals.usage, store.totals.cost, store.totals.settled) == (USAGE, COST, 1)
        store.close()
    assert resume.spent(reopen())[1].usd == COST.usd


def test_of_a_reply_that_was_not_booked_only_the_last_call_is_added(reopen: Reopen):
    first = opened(reopen())
    send(first, 0)
    book(first, 0, usage=Usage(prompt=60, completion=10), cost=Cost(usd=Decimal("0.0001")))
    send(first, 0, attempt=2)
    first.add(result(0, attempts=2))
    first.close()

    second = opened(reopen())
    assert (second.totals.usage, second.totals.cost) == (USAGE, COST)
    assert second.possible_double_paid == 0


def test_a_row_that_gave_up_does_not_prove_that_its_last_call_was_free(reopen: Reopen):
    first = opened(reopen())
    send(first, 0)
    first.add(result(0, Outcome.EXHAUSTED, usage=Usage(), cost=Cost()))
    first.close()
    assert opened(reopen()).possible_double_paid == 1


def test_a_torn_ledger_line_is_an_open_call(reopen: Reopen):
    first = opened(reopen())
    finish(first, 0)
    send(first, 1)
    first.close()
    folder = reopen()
    name = list(resume.files_of(folder, 0)[1])[-1]
    torn = ledger.settled_line(
        ledger.Settled(index=1, attempt=1, credential="a", endpoint="b", model="c", usage=USAGE, cost=COST)
    )[:-8]
    with folder.open(str(name)) as file:
        whole = file.read()
    folder.put(str(name), iter([whole, torn]), replace=True)
    store = opened(reopen())
    assert (store.totals.settled, store.possible_double_paid) == (1, 1)


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b'{"k":"refund","i":1,"t":1}\n', b'{"k":"settled"\n', b"[]\n"]
)
def test_a_ledger_line_that_cannot_be_read_stops_everything(line: bytes, reopen: Reopen):
    first = opened(reopen())
    finish(first, 0)
    first.close()
    folder = reopen()
    name = list(resume.files_of(folder, 0)[1])[-1]
    with folder.open(str(name)) as file:
        whole = file.read()
    folder.put(str(name), iter([whole, line]), replace=True)
    with pytest.raises(
        StoreError, match=r"ledger-00000-1-\d+\.jsonl cannot be read at line \d: it is the truth"
    ):
        opened(reopen())


def test_a_part_that_cannot_be_read_is_not_paid_again(reopen: Reopen):
    first = opened(reopen())
    finish(first, 0)
    first.close()
    folder = reopen()
    name = list(resume.files_of(folder, 0)[0])[-1]
    folder.put(str(name), iter([b'{"half":\n']), replace=True)
    with pytest.raises(StoreError, match="no result row"):
        opened(reopen())
    with pytest.raises(StoreError, match="no result row"):
        list(read.lines(reopen()))


def test_results_of_all_chunks_come_in_index_order(reopen: Reopen):
    for chunk, start in ((1, 3), (0, 0), (2, 6)):
        store = opened(reopen(), answers(start + 3, chunk=chunk, start=start))
        for index in (start + 1, start, start + 2):
            finish(store, index, Outcome.BAD_REQUEST if index % 3 == 0 else Outcome.OK)
        store.close()
        if chunk == 1:
            store.compact()
    assert list(ended(reopen())) == list(range(9))
    bad = read.results(reopen(), keep=[Outcome.BAD_REQUEST])
    assert [one.index for one in bad] == [0, 3, 6]


def test_a_folder_without_results_says_so(reopen: Reopen):
    with pytest.raises(InputError, match="There are no results in"):
        list(read.lines(reopen()))


def test_two_tries_never_write_into_one_file(reopen: Reopen):
    first = opened(reopen())
    finish(first, 0)
    first.close()
    second = opened(reopen(), fence=1)
    finish(second, 1)
    second.close()
    assert second.fence == 2
    assert list(ended(reopen())) == [0, 1]


def test_a_file_is_written_whole_and_its_name_is_taken_once(reopen: Reopen):
    folder = reopen()
    folder.put("a.json", iter([b"one", b" two"]))
    with pytest.raises(FileExistsError):
        folder.put("a.json", iter([b"other"]))
    with folder.open("a.json") as file:
        assert file.read() == b"one two"
    folder.put("a.json", iter([b"other"]), replace=True)
    assert reopen().sizes() == {"a.json": 5}
    folder.remove("a.json")
    folder.remove("a.json")
    assert reopen().names() == []
    with pytest.raises(FileNotFoundError):
        folder.open("a.json")


def test_a_file_whose_writing_fails_is_not_there(reopen: Reopen):
    def half() -> object:
        yield b"one"
        raise KeyboardInterrupt

    folder = reopen()
    with pytest.raises(KeyboardInterrupt):
        folder.put("a.json", half())  # type: ignore[arg-type]
    assert reopen().names() == []
