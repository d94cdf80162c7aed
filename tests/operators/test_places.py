"""Where tasks keep their files, whatever they are called."""

from __future__ import annotations

import os.path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.errors import StoreError
from airflow_provider_llmbatch.operators.places import NOTE_FILE, Note, leave_note, read_note, task_folder

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.sampled_from(
    [".", "..", "../..", "a/../b"]
)


@given(dag=NAMES, run=NAMES, task=NAMES, map_index=st.integers(-1, 9))
def test_a_folder_lies_below_the_results_whatever_the_names(dag, run, task, map_index):
    place = task_folder("/results", dag, run, task, map_index)
    assert os.path.normpath(place) == place
    assert place.startswith("/results/")
    assert place.count("/") == (4 if map_index < 0 else 5)


@given(one=st.tuples(NAMES, NAMES, NAMES), two=st.tuples(NAMES, NAMES, NAMES))
def test_two_task_instances_never_share_a_folder(one, two):
    same = task_folder("/results", *one) == task_folder("/results", *two)
    assert same == (one == two)


def test_a_note_is_read_back_and_its_absence_is_no_note(tmp_path):
    folder = open_folder(str(tmp_path))
    assert read_note(folder) is None
    note = Note(result_path="/elsewhere", chunk={"plan": "/p/plan.json", "chunk": 3, "sha": "ab"})
    leave_note(folder, note)
    assert read_note(folder) == note


@pytest.mark.parametrize("content", ["", "{", "[]", '{"result_path": "/x"}', "null"])
def test_a_note_that_cannot_be_read_is_not_taken_for_a_missing_one(tmp_path, content):
    (tmp_path / NOTE_FILE).write_text(content)
    with pytest.raises(StoreError, match=r"task\.json cannot be read"):
        read_note(open_folder(str(tmp_path)))
