from __future__ import annotations

import os.path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.plugins.pages import report_location, report_page

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.sampled_from(
    [".", "..", "../..", "a/../b"]
)


@given(dag=NAMES, run=NAMES, task=NAMES, map_index=st.integers(-1, 9))
def test_a_report_lies_below_the_results_whatever_the_names(dag, run, task, map_index):
    location = report_location("/results", dag, run, task, map_index)
    assert os.path.normpath(location) == location
    assert location.startswith("/results/")
    assert location.count("/") == (5 if map_index < 0 else 6)


@given(one=st.tuples(NAMES, NAMES, NAMES), two=st.tuples(NAMES, NAMES, NAMES))
def test_two_task_instances_never_share_a_report(one, two):
    same = report_location("/results", *one) == report_location("/results", *two)
    assert same == (one == two)


def test_a_report_can_lie_on_any_file_system(monkeypatch):
    import fsspec

    monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", "memory://bucket/results")
    fsspec.filesystem("memory").pipe("/bucket/results/d/r%2B1/t/report.html", "für alle".encode())
    assert report_page("d", "r+1", "t") == "für alle"
    assert report_page("d", "r+2", "t") is None


@pytest.mark.parametrize("content", [b"\xff\xfe"])
def test_a_report_that_cannot_be_read_is_not_taken_for_a_missing_one(monkeypatch, tmp_path, content):
    monkeypatch.setenv("AIRFLOW__LLMBATCH__RESULTS_PATH", str(tmp_path))
    path = tmp_path / "d" / "r" / "t" / "report.html"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(UnicodeDecodeError):
        report_page("d", "r", "t")
