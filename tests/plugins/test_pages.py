"""The page of a task: the report it wrote, or one of what it has stored so far."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine import manifests
from airflow_provider_llmbatch.engine.items import Chunk, Outcome, PromptRef, Result, Usage
from airflow_provider_llmbatch.engine.results import names
from airflow_provider_llmbatch.engine.results.folder import LocalFolder, open_folder
from airflow_provider_llmbatch.engine.results.store import Answers, ResultStore, open_store
from airflow_provider_llmbatch.engine.summary import Manifest, Plan
from airflow_provider_llmbatch.operators.batch import write_plan
from airflow_provider_llmbatch.operators.places import Note, leave_note, task_folder
from airflow_provider_llmbatch.plugins.pages import Page, report_page

PROMPT = PromptRef(name="p", version="1", sha="ab" * 32)
NOW = 1_800_000_000.0
ITEMS = 10


@pytest.fixture(autouse=True)
def results_path(monkeypatch, tmp_path) -> str:
    """Return where results lie."""
    monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", str(tmp_path / "results"))
    return str(tmp_path / "results")


@pytest.fixture
def folder(results_path) -> LocalFolder:
    """Return the folder of a task that has begun."""
    place = open_folder(task_folder(results_path, "d", "r", "t"))
    leave_note(place, Note(result_path=place.uri))
    return place


def page(map_index: int = -1) -> Page:
    return report_page("d", "r", "t", map_index, clock=lambda: NOW)


def words(shown: Page) -> str:
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", shown.html, flags=re.S).split())


def begun(folder: LocalFolder, chunk: int, done: int, fence: int = 1) -> ResultStore:
    """Begin a chunk of ten items as a task does, and answer some."""
    start = ITEMS * chunk
    answers = Answers(
        chunk=chunk,
        start=start,
        stop=start + ITEMS,
        fingerprint=f"f{chunk}",
        source="rows",
        prompt=PROMPT,
        model="m-1",
        schema_digest="",
        host="",
    )
    store = open_store(folder, answers, fence=fence, on_existing="resume")
    for index in range(start, start + done):
        usage = Usage(prompt=10, completion=5)
        store.sent(index, 1)
        store.add(Result(index=index, id=f"#{index}", outcome=Outcome.OK, usage=usage, attempts=1))
        store.book(index=index, attempt=1, credential="c", endpoint="e", model="m-1", usage=usage)
    return store


def ended(folder: LocalFolder, chunk: int) -> None:
    """Begin a chunk and bring it to its end."""
    store = begun(folder, chunk, ITEMS)
    store.close()
    account = Manifest(
        result_path=folder.uri,
        state="complete",
        items=ITEMS,
        counts=store.compact().counts(),
        chunk=chunk,
        prompt=PROMPT,
        fingerprint=f"f{chunk}",
        started_at=NOW - 60,
        ended_at=NOW - 30,
    )
    manifests.store(folder, account)


def test_a_task_that_has_not_begun_is_told_so_and_nothing_is_made(results_path, tmp_path):
    shown = page()
    assert shown.status == 404
    assert "has not begun" in words(shown)
    assert results_path in words(shown)
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_has_stored_nothing_is_looked_at_again(folder):
    shown = page()
    assert "has begun, and has stored nothing so far" in words(shown)
    assert shown.refresh_s == 10


def test_chunks_that_ended_that_run_and_that_wait_make_one_report(folder):
    cuts = tuple(Chunk(number=n, start=ITEMS * n, stop=ITEMS * (n + 1), offset=0, sha="") for n in range(3))
    plan = Plan(
        **{"source": "rows", "items": 3 * ITEMS, "bad_items": 0, "prompt": PROMPT, "model": "m-1"},
        **{"prompt_tokens": 300, "output_tokens": 150, "chunks": cuts},
    )
    (descriptor, *_) = write_plan(folder, plan)
    leave_note(folder, Note(result_path=folder.uri, chunk=descriptor))
    ended(folder, 0)
    running = begun(folder, 1, done=4)
    running.sent(19, 1)  # in flight: nothing to be charged twice for
    shown = page()
    assert "14 of 30" in words(shown)
    assert "Still running, as of 2027-01-15 08:00:00 UTC." in words(shown)
    assert "As of 2027-01-15 08:00:00 UTC" in words(shown)
    assert "unsent not sent, or not answered yet 16" in words(shown)
    assert "Calls maybe paid twice 0" in words(shown)
    assert shown.refresh_s == 10


def test_calls_that_a_kill_cut_off_show_while_the_next_try_runs(folder):
    begun(folder, 0, done=4).sent(9, 1)
    begun(folder, 0, done=0, fence=2).sent(9, 1)
    assert "1 call may have been charged without leaving a reply" in words(page())


def test_a_line_that_is_being_written_does_not_count_yet(folder):
    begun(folder, 0, done=4)
    (part,) = Path(folder.uri).glob("part-*")
    part.write_bytes(part.read_bytes() + b'{"schema_version":1,"index":4,"id":"#4","outc')
    assert "4 of 10" in words(page())


def test_a_page_is_final_when_all_chunks_have_ended(folder):
    ended(folder, 0)
    ended(folder, 1)
    shown = page()
    assert "complete" in words(shown)
    assert "20 of 20" in words(shown)
    assert shown.refresh_s is None


def test_a_manifest_of_a_plan_before_this_one_is_left_out(folder):
    ended(folder, 0)
    ended(folder, 7)
    cut = Chunk(number=0, start=0, stop=ITEMS, offset=0, sha="")
    plan = Plan(
        **{"source": "rows", "items": ITEMS, "bad_items": 0, "prompt": PROMPT, "model": "m-1"},
        **{"prompt_tokens": 100, "output_tokens": 50, "chunks": (cut,)},
    )
    leave_note(folder, Note(result_path=folder.uri, chunk=write_plan(folder, plan)[0]))
    assert "10 of 10" in words(page())


def test_a_mapped_instance_has_its_own_page_or_that_of_all(folder, results_path):
    ended(folder, 0)
    own = open_folder(task_folder(results_path, "d", "r", "t", 1))
    leave_note(own, Note(result_path=own.uri))
    begun(own, 0, done=3)
    assert "3 of 10" in words(page(map_index=1))
    assert "10 of 10" in words(page(map_index=2))


def test_results_in_another_place_are_found_by_the_note(folder, tmp_path):
    elsewhere = open_folder(str(tmp_path / "elsewhere"))
    leave_note(folder, Note(result_path=elsewhere.uri))
    ended(elsewhere, 0)
    assert "10 of 10" in words(page())


def test_a_written_report_goes_before_everything_else(folder):
    ended(folder, 0)
    (Path(folder.uri) / "report.html").write_text("für alle", encoding="utf-8")
    assert page() == Page(html="für alle")


def test_parts_that_are_put_together_meanwhile_are_read_again(folder):
    """A listing from before the compaction names files that are gone after it."""
    store = begun(folder, 0, done=4)
    store.close()

    class Late(LocalFolder):
        def open(self, name):
            if name.startswith("part-") and store.folder.names().count(name) and "-1-0" in name:
                store.compact()
            return super().open(name)

    (found,) = manifests.manifests(Late(folder.uri), as_of="now")
    assert found.counts == {Outcome.OK: 4, Outcome.UNSENT: 6}


@pytest.mark.parametrize("name", [names.manifest_file(0), names.chunk_file(0)])
@pytest.mark.parametrize("content", ["", "{}", '{"schema_version": 99}', "\x00"])
def test_what_cannot_be_read_is_not_taken_for_missing(folder, name, content):
    ended(folder, 0)
    (Path(folder.uri) / names.manifest_file(0)).unlink()
    (Path(folder.uri) / name).write_text(content)
    shown = page()
    assert shown.status == 500
    assert f"{name} cannot be read" in words(shown)


def test_a_manifest_survives_its_file(folder):
    ended(folder, 0)
    content = json.loads((Path(folder.uri) / names.manifest_file(0)).read_text())
    assert manifests.manifests(folder, as_of="")[0] == Manifest.from_json(content)
