from __future__ import annotations

import subprocess
import sys

import fsspec
import pytest

from airflow_provider_llmbatch.engine.items import BadItem, Item
from airflow_provider_llmbatch.engine.source import open_source
from airflow_provider_llmbatch.errors import ConfigurationError, InputError, StoreError

LINE = b'{"prompt": "hi"}\n'


@pytest.fixture
def memory():
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()


def test_rows_in_memory_are_items_in_order():
    source = open_source([{"prompt": "a"}, {"id": "b", "prompt": "b"}, {"prompt": None}])
    first, second, third = source.rows()
    assert first.item == Item(index=0, id="#0", prompt="a")
    assert second.item.id == "b"
    assert isinstance(third.item, BadItem)
    assert "rows, row 2: the row has none of" in third.item.error.message
    assert [row.item.index for row in source.rows(start=1, offset=1, stop=2)] == [1]


def test_the_content_of_a_row_in_memory_does_not_depend_on_the_order_of_its_keys():
    (one,) = open_source([{"id": "a", "prompt": "x"}]).rows()
    (other,) = open_source([{"prompt": "x", "id": "a"}]).rows()
    assert one.raw == other.raw


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, "\ud800"])
def test_a_row_in_memory_that_json_cannot_hold_is_a_bad_item(value):
    (row,) = open_source([{"vars": {"x": value}}]).rows()
    assert isinstance(row.item, BadItem)


@pytest.mark.parametrize("rows", [[], {"prompt": "a"}])
def test_no_rows_and_one_row_instead_of_a_list_are_refused(rows):
    with pytest.raises(InputError, match="give"):
        open_source(rows)


def test_a_url_is_read_through_its_file_system(memory):
    memory.pipe("/bucket/items.jsonl", LINE * 3)
    source = open_source("memory://bucket/items.jsonl")
    assert source.uri == "memory://bucket/items.jsonl"
    assert [row.item.id for row in source.rows()] == ["#0", "#1", "#2"]
    assert [row.item.id for row in source.rows(start=2, offset=2 * len(LINE))] == ["#2"]


def test_a_file_system_can_be_handed_in(memory):
    memory.pipe("/bucket/items.csv", b"name\nAda\n")
    source = open_source("memory://bucket/items.csv", filesystem=memory)
    assert next(source.rows()).item.vars == {"name": "Ada"}


def test_the_extension_may_be_in_capitals(tmp_path):
    path = tmp_path / "ITEMS.JSONL"
    path.write_bytes(LINE)
    assert next(open_source(path).rows()).item.prompt == "hi"


def test_a_source_that_cannot_be_used_is_refused_with_a_remedy(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "notes.txt").write_bytes(LINE)
    cases = {
        "missing.jsonl": "does not exist; check the path",
        "empty.jsonl": "is empty; was the task that writes it finished",
        "folder.jsonl": "is a directory; name a file in it",
        "notes.txt": r"has no known extension; known are .jsonl, .ndjson, .csv, .parquet",
    }
    for name, words in cases.items():
        with pytest.raises(InputError, match=words) as caught:
            open_source(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_an_unknown_kind_of_url_is_a_matter_of_configuration():
    with pytest.raises(ConfigurationError, match=r"nowhere://a/b.jsonl cannot be opened"):
        open_source("nowhere://a/b.jsonl")


class Failing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def _strip_protocol(self, uri: str) -> str:
        return uri

    def info(self, path: str) -> dict[str, object]:
        raise self.error


def test_a_source_without_permission_is_refused():
    with pytest.raises(InputError, match="may not be read by this worker"):
        open_source("s3://bucket/a.jsonl", filesystem=Failing(PermissionError("no")))


@pytest.mark.parametrize("error", [OSError("network is away"), RuntimeError("no credentials")])
def test_a_store_that_does_not_answer_is_not_taken_for_an_absent_source(error):
    with pytest.raises(StoreError, match="cannot be opened now"):
        open_source("s3://bucket/a.jsonl", filesystem=Failing(error))


def test_heavy_libraries_are_not_loaded_by_importing_the_steps():
    heavy = "tiktoken genai_prices pyarrow httpx aiohttp redis torch"
    steps = "source prompt split compose identity tokens.count tokens.price tokens.reserve"
    program = "import sys, importlib\n"
    program += f"for s in {steps.split()}: importlib.import_module('airflow_provider_llmbatch.engine.' + s)\n"
    program += f"print([m for m in {heavy.split()} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
