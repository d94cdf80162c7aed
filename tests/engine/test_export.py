from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import fsspec
import pytest
from pyarrow import parquet

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.export import results_of, to_file
from airflow_provider_llmbatch.engine.items import Outcome, PromptRef, Result
from airflow_provider_llmbatch.engine.recheck import Portion, recheck
from airflow_provider_llmbatch.engine.results.folder import Folder, open_folder
from airflow_provider_llmbatch.engine.results.objects import ObjectFolder
from airflow_provider_llmbatch.engine.sink.columns import columns
from airflow_provider_llmbatch.engine.validate.schema import output_schema


@pytest.fixture(params=["local", "object store"])
def target(request, tmp_path: Path) -> Folder:
    if request.param == "local":
        return open_folder(str(tmp_path / "target"))
    files = fsspec.filesystem("memory")
    return ObjectFolder("memory://target", files, f"/{tmp_path.name}/target", spool_root=tmp_path / "spool")


@pytest.fixture
def filled(tmp_path: Path):
    """Return a function that makes a folder with the results of these chunks, two items each."""

    def fill(name: str, *chunks: int) -> Folder:
        folder = open_folder(str(tmp_path / name))
        for chunk in chunks:
            rows = [
                Result(index=2 * chunk, id=f"{name}{2 * chunk}", outcome=Outcome.OK, output="yes"),
                Result(index=2 * chunk + 1, id=f"{name}{2 * chunk + 1}", outcome=Outcome.REFUSED),
            ]
            portion = Portion(
                results=rows,
                chunk=chunk,
                start=2 * chunk,
                stop=2 * chunk + 2,
                source="made",
                fingerprint="f",
                prompt=PromptRef(name="p", version="1", sha=""),
                model="m",
            )
            recheck(portion, output_schema(None), folder, clocks=Clocks())
        return folder

    return fill


def content(folder: Folder, name: str) -> bytes:
    with folder.open(name) as file:
        return file.read()


def test_results_of_several_folders_follow_each_other_and_only_the_chunks_that_are_asked_for(filled):
    first, second = filled("a", 0, 1), filled("b", 0, 1, 2)
    places = [(first, {1}), (second, [0, 2])]
    assert [row.id for row in results_of(places)] == ["a2", "a3", "b0", "b1", "b4", "b5"]
    assert [row.id for row in results_of(places, [Outcome.OK])] == ["a2", "b0", "b4"]


def test_a_file_is_the_same_on_a_disk_and_in_an_object_store(filled, target):
    source = filled("a", 0, 1)

    def results():
        return results_of([(source, [0, 1])])

    assert to_file(results(), target, "r.parquet", form="parquet", columns=columns()) == 4
    table = parquet.read_table(io.BytesIO(content(target, "r.parquet")))
    assert table.column("id").to_pylist() == ["a0", "a1", "a2", "a3"]
    assert to_file(results(), target, "r.csv", form="csv", columns=columns()) == 4
    rows = list(csv.DictReader(io.StringIO(content(target, "r.csv").decode(), newline="")))
    assert [row["text"] for row in rows] == ["yes", "", "yes", ""]


def test_a_file_that_is_there_is_replaced_and_one_that_cannot_be_made_leaves_it(filled, target):
    source = filled("a", 0)
    for chunks in ([0], [0]):
        to_file(results_of([(source, chunks)]), target, "r.jsonl", form="jsonl", columns=())
    before = content(target, "r.jsonl")
    assert [json.loads(line)["outcome"] for line in before.splitlines()] == ["ok", "refused"]

    def breaking():
        yield from results_of([(source, [0])])
        raise OSError("gone")

    with pytest.raises(Exception, match="gone"):
        to_file(breaking(), target, "r.jsonl", form="jsonl", columns=())
    assert content(target, "r.jsonl") == before
    assert target.names() == ["r.jsonl"]
