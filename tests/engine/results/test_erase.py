"""Items are taken out of results on every kind of store, and nothing else changes."""

from __future__ import annotations

import json

import pytest

from airflow_provider_llmbatch.engine import erasing, manifests
from airflow_provider_llmbatch.engine.items import Outcome, RunRef
from airflow_provider_llmbatch.engine.results import erase, read, resume, rows
from airflow_provider_llmbatch.engine.results.erase import Wanted
from airflow_provider_llmbatch.engine.results.local import LocalFolder
from airflow_provider_llmbatch.engine.summary import Manifest
from airflow_provider_llmbatch.errors import InputError, StoreError
from tests.engine.results import made

CANARY = "Ann-Canary"


def filled(folder, *, compact: bool) -> None:
    """Store ten items in two tries; three of them are Ann's, one is there twice."""
    for fence, indexes in ((1, range(5)), (2, range(4, 10))):
        store = made.opened(folder, fence=fence)
        for index in indexes:
            hers = index in (2, 4, 7)
            metadata = {"patient": CANARY, "n": 1} if hers else {"patient": "Bob", "n": 2}
            outcome = Outcome.EXHAUSTED if (index, fence) == (4, 1) else Outcome.OK
            output = {"label": CANARY if hers else "fine", "score": 0.5}
            made.finish(store, index, outcome, metadata=metadata, output=output)
        store.close()
        if compact and fence == 2:
            store.compact()
    counts = {Outcome.OK: 10}
    manifests.store(folder, Manifest(result_path=folder.uri, state="complete", items=10, counts=counts))


def content(folder) -> bytes:
    found = b""
    for name in folder.names():
        with folder.open(name) as file:
            found += file.read()
    return found


@pytest.mark.parametrize("compact", [False, True], ids=["parts", "compacted"])
def test_an_erased_item_leaves_a_row_that_says_nothing_and_is_never_sent_again(reopen, compact):
    folder = reopen()
    filled(folder, compact=compact)
    before, spent = list(read.results(reopen())), resume.spent(reopen())
    ids = erasing.find_items(reopen(), Wanted(subjects=frozenset({("patient", CANARY)})))
    assert ids == {"item-2", "item-4", "item-7"}
    told = list(erasing.erase_items([reopen()], ids))
    assert sum(one.count for one in told) == (3 if compact else 4)

    folder = reopen()
    after = list(read.results(folder))
    assert CANARY.encode() not in content(folder)
    assert all(f'"{id}"'.encode() not in content(folder) for id in ids)
    assert [row for row in after if row.index not in (2, 4, 7)] == [
        row for row in before if row.id not in ids
    ]
    gone = [row for row in after if row.index in (2, 4, 7)]
    assert {(row.outcome, row.output, row.metadata, row.request_id) for row in gone} == {
        (Outcome.SKIPPED, None, None, None)
    }
    assert all(row.error is not None and row.error.kind == erase.ERASED for row in gone)
    assert resume.spent(folder) == spent
    assert manifests.manifests(folder)[0].counts == {Outcome.OK: 7, Outcome.SKIPPED: 3}
    with_next = made.opened(folder)
    assert all(with_next.where.is_final(index) for index in range(10))
    with_next.close()


def test_erasing_again_changes_nothing(reopen):
    filled(reopen(), compact=True)
    list(erasing.erase_items([reopen()], {"item-2"}))
    once = content(reopen())
    assert list(erasing.erase_items([reopen()], {"item-2", "#2", "nobody"})) == []
    assert content(reopen()) == once


def test_a_try_changes_nothing_and_tells_the_same(memory):
    filled(memory(), compact=True)
    before = content(memory())
    tried = list(erasing.erase_items([memory()], {"item-2"}, dry=True))
    assert content(memory()) == before
    assert tried == list(erasing.erase_items([memory()], {"item-2"}))
    deleted = list(erasing.delete_folder(memory(), dry=True))
    assert {one.place.rpartition("/")[2] for one in deleted} == set(memory().names())
    assert memory().names()
    assert list(erasing.delete_folder(memory())) == deleted
    assert memory().names() == []


def test_an_erasure_that_was_cut_off_finds_what_is_left_by_the_subject_again(memory, tmp_path):
    filled(memory(), compact=True)
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "results.csv").write_text(f"id,output\r\nitem-2,{CANARY}\r\n")
    folders, hers = [memory(), LocalFolder(tmp_path / "export")], Wanted(subjects=frozenset({("n", "1")}))
    begun = erasing.erase_items(folders, erasing.find_items(folders[0], hers))
    assert next(begun).place.endswith("results.csv")
    begun.close()
    left = erasing.find_items(folders[0], hers)
    assert len(left) == 3
    list(erasing.erase_items(folders, left))
    assert not any(CANARY.encode() in content(folder) for folder in folders)


def test_a_row_that_was_cut_by_a_kill_goes_as_well(tmp_path):
    folder = LocalFolder(tmp_path)
    filled(folder, compact=True)
    part = next(tmp_path.glob("part-00000-0-*.jsonl"))
    torn = rows.encode(made.result(9, output=CANARY, metadata={"patient": CANARY}))[:-20]
    part.write_bytes(part.read_bytes() + torn)
    list(erasing.erase_items([folder], {"item-2", "item-4", "item-7"}))
    assert CANARY.encode() not in content(folder)
    assert len(list(read.results(folder))) == 10


def test_what_is_no_row_stops_before_anything_is_guessed(tmp_path):
    folder = LocalFolder(tmp_path)
    filled(folder, compact=True)
    part = next(tmp_path.glob("part-00000-0-*.jsonl"))
    part.write_bytes(b'{"broken": 1}\n' + part.read_bytes())
    with pytest.raises(StoreError, match="no result row"):
        list(erasing.erase_items([folder], {"item-2"}))
    with pytest.raises(InputError, match="No item"):
        list(erasing.erase_items([folder], set()))


def test_a_subject_is_known_by_any_of_its_fields_whatever_their_type():
    wanted = Wanted(ids=frozenset({"a"}), subjects=frozenset({("n", "12"), ("flag", "true")}))
    assert wanted.covers("a", None)
    assert wanted.covers("b", {"n": 12})
    assert wanted.covers("b", {"n": "12"})
    assert wanted.covers("b", {"flag": True})
    assert not wanted.covers("b", {"n": 120, "other": "12"})
    assert not wanted.covers("b", ["n", "12"])


def test_the_runs_behind_a_folder_are_told_by_its_rows(tmp_path):
    folder = LocalFolder(tmp_path)
    store = made.opened(folder)
    made.finish(store, 0, run=RunRef(dag="b", run="manual__2026", task="t", map_index=0, try_number=1))
    store.close()
    assert erase.runs_in(folder) == {("b", "manual__2026")}


def test_a_run_that_has_no_row_yet_is_told_by_its_chunk(tmp_path):
    folder = LocalFolder(tmp_path)
    made.opened(folder, made.answers(occasion="d/a/run/task/-1/2")).close()
    assert erase.runs_in(folder) == {("d", "a/run")}


def test_exports_and_sources_lose_the_item_and_keep_their_other_rows(tmp_path):
    folder = LocalFolder(tmp_path)
    source = [{"id": "a", "prompt": CANARY}, {"prompt": "second"}, {"id": "c", "metadata": {"who": CANARY}}]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in source))
    (tmp_path / "other.jsonl").write_text(
        json.dumps({"custom_id": "a", "output": CANARY}) + '\n{"unit":"c"}\n{"id":"b"}\n'
    )
    (tmp_path / "table.csv").write_text(f'id,output\r\n\'=a,{CANARY}\r\na,"{CANARY},\n2"\r\nb,x\r\n')
    (tmp_path / "foreign.csv").write_text("name\r\na\r\n")
    (tmp_path / "report.html").write_text(CANARY)
    (tmp_path / "notes.bin").write_bytes(b"?")
    assert erasing.find_items(folder, Wanted(subjects=frozenset({("who", CANARY)}))) == {"c"}
    told = {
        one.place.rpartition("/")[2]: (one.what, one.count)
        for one in erasing.erase_items([folder], {"a", "=a", "c"})
    }
    assert told == {
        "items.jsonl": ("rows", 2),
        "other.jsonl": ("rows", 2),
        "table.csv": ("rows", 2),
        "report.html": ("file", len(CANARY)),
        "notes.bin": ("left", 1),
    }
    assert CANARY.encode() not in content(folder)
    lines = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert [line.get("id") for line in lines] == ["#0", None, "#2"]
    assert (tmp_path / "other.jsonl").read_text() == '{"id":"b"}\n'
    assert (tmp_path / "table.csv").read_bytes() == b"id,output\r\nb,x\r\n"
    assert (tmp_path / "foreign.csv").read_bytes() == b"name\r\na\r\n"


def test_a_parquet_file_loses_the_item_and_keeps_its_types(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"id": ["a", "b", None], "score": [1.5, None, 2.5]})
    parquet.write_table(table, tmp_path / "results.parquet")
    list(erasing.erase_items([LocalFolder(tmp_path)], {"a"}))
    found = parquet.read_table(tmp_path / "results.parquet")
    assert found.to_pylist() == [{"id": "b", "score": None}, {"id": None, "score": 2.5}]
    assert found.schema == table.schema
