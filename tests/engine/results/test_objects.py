from __future__ import annotations

import io
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_provider_llmbatch.engine.results import objects, read, resume, rows
from airflow_provider_llmbatch.engine.results.blocks import BLOCK_BYTES
from airflow_provider_llmbatch.engine.results.folder import open_folder
from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.engine.results.objects import ObjectFolder
from airflow_provider_llmbatch.errors import ConfigurationError, StoreError
from tests.engine.results.made import answers, finish, opened, result
from tests.services.s3_server import Bucket


@pytest.fixture
def s3(bucket: Bucket, tmp_path: Path) -> Callable[..., ObjectFolder]:
    def open_it(**options: Any) -> ObjectFolder:
        values = {"spool_root": tmp_path / "spool", "sleep": lambda _: None, **options}
        folder: ObjectFolder = bucket.folder("results", **values)
        return folder

    return open_it


def ids(folder: ObjectFolder) -> list[int]:
    return [one.index for one in read.results(folder)]


def test_an_answer_that_got_lost_does_not_store_a_part_twice(s3, bucket: Bucket):
    store = opened(s3(part_rows=2))
    for index in range(4):
        finish(store, index)
    bucket.fail({"method": "PUT", "contains": "part-00000", "status": 500, "done": True, "times": 1})
    store.close()
    parts = [name for name in s3().names() if name.startswith("part-")]
    assert len(parts) == len(set(parts)) <= 2
    assert ids(s3()) == [0, 1, 2, 3]
    assert resume.spent(s3())[1].usd == opened(s3()).totals.cost.usd


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_errors_of_the_server_that_pass_are_waited_out(method: str, s3, bucket: Bucket):
    waits: list[float] = []
    folder = s3(sleep=waits.append)
    store = opened(folder)
    finish(store, 0)
    bucket.fail({"method": method, "status": 500, "times": 2})
    store.close()
    store.compact()
    assert ids(s3()) == [0]
    assert sorted(waits)[:1] == [objects.BACK_OFF_S[0]]


def test_a_store_that_cannot_be_read_is_not_taken_for_empty(s3, bucket: Bucket):
    store = opened(s3())
    finish(store, 0)
    store.close()
    bucket.fail({"method": "GET", "status": 500})
    with pytest.raises(StoreError, match=r"Cannot (list|read) s3://.*Check that the store can be reached"):
        opened(s3())
    bucket.fail({"method": "GET", "status": 403})
    with pytest.raises(StoreError, match=r"Not allowed to (list|read) s3://"):
        opened(s3())
    bucket.fail({"method": "GET", "contains": "part-", "status": 500})
    with pytest.raises(StoreError, match=r"Cannot read s3://.*part-00000-1-1\.jsonl"):
        opened(s3())


def test_a_bucket_that_is_not_there_fails_before_anything_is_sent(s3, bucket: Bucket):
    path = f"no-{bucket.name}/results"
    with pytest.raises(StoreError, match=r"Cannot write s3://no-bucket"):
        opened(ObjectFolder(f"s3://{path}", bucket.files(), path, sleep=lambda _: None))


def test_an_endpoint_that_knows_no_exclusive_writes_works_as_well(s3, bucket: Bucket):
    bucket.fail({"method": "PUT", "contains": "ledger-", "status": 501, "times": 1})
    store = opened(s3())
    finish(store, 0)
    store.close()
    store.compact()
    assert ids(s3()) == [0]


def large_rows(folder: ObjectFolder, count: int) -> list[bytes]:
    """Leave two tries whose rows are more than is written at once."""
    for first in (1, 0):
        store = opened(folder, answers(count))
        for index in range(first, count, 2):
            finish(store, index, raw_output=f"{index} " * 6000)
        store.close()
    return list(read.lines(folder))


def test_parts_that_make_a_large_one_are_streamed(s3, bucket: Bucket):
    before = large_rows(s3(), 400)
    assert sum(map(len, before)) > objects.WRITE_BYTES
    store = opened(s3(), answers(400))
    store.close()
    bucket.fail()
    store.compact()
    whole = [r for r in bucket.requests() if "part-00000-0-" in r and r.startswith(("PUT", "POST"))]
    assert len([request for request in whole if request.startswith("PUT")]) == 2
    assert list(read.lines(s3())) == before
    assert len(resume.files_of(s3(), 0)[0]) == 1


def test_a_large_part_whose_writing_fails_half_way_is_not_there(s3, bucket: Bucket):
    before = large_rows(s3(), 400)
    store = opened(s3(), answers(400))
    store.close()
    bucket.fail({"method": "POST", "contains": "part-00000-0-", "status": 403, "skip": 1})
    with pytest.raises(StoreError):
        store.compact()
    bucket.fail()
    assert not [name for name in s3().names() if name.startswith("part-00000-0-")]
    assert list(read.lines(s3())) == before

    def breaks() -> Iterator[bytes]:
        yield b"x" * objects.WRITE_BYTES
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        s3().put("part-00000-0-9.jsonl", breaks())
    assert "part-00000-0-9.jsonl" not in s3().names()


def test_rows_are_read_back_with_a_request_per_part_and_not_per_row(s3, bucket: Bucket):
    opened(s3(), answers(500)).close()
    order = sorted(range(500), key=lambda index: index + (index * 7 % 40))  # replies come nearly in order
    for n in range(25):
        lines = (rows.encode(result(index)) for index in order[20 * n : 20 * n + 20])
        s3().put(str(PartName(0, 1, n + 1)), lines)
    reading = s3()
    bucket.fail()
    assert ids(reading) == list(range(500))
    gets = [request for request in bucket.requests() if "/part-" in request]
    assert len(gets) == 50  # once to find the rows, once to read them


def test_a_large_part_is_never_in_memory_as_a_whole(memory: Callable[..., ObjectFolder]):
    folder = memory()
    name = str(PartName(0, 1, 1))
    line = b"x" * 999 + b"\n"
    folder.put(name, iter([line * 40_000]))
    folder.sizes()
    tracemalloc.start()
    with folder.open(name) as file:
        assert sum(len(one) for one in file) == 40_000_000
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3 * BLOCK_BYTES


def test_a_part_is_read_from_anywhere(memory: Callable[..., ObjectFolder]):
    folder = memory()
    name = str(PartName(0, 1, 1))
    content = b"".join(b"line %d\n" % number for number in range(1000))
    folder.put(name, iter([content]))
    plain = io.BytesIO(content)
    with folder.open(name) as file:
        for whence, offset in ((0, 500), (1, -20), (1, 700), (2, -30), (0, 0), (2, 0), (0, len(content) + 9)):
            assert file.seek(offset, whence) == plain.seek(offset, whence)
            assert file.readline() == plain.readline()


def test_a_folder_is_opened_by_its_url():
    path = f"memory://{uuid.uuid4().hex}/results/"
    store = opened(open_folder(path))
    finish(store, 0)
    store.close()
    folder = open_folder(path, read_only=True)
    assert isinstance(folder, ObjectFolder)
    assert folder.uri == path.rstrip("/")
    assert ids(folder) == [0]


def test_a_file_system_that_is_given_is_used_and_the_connection_stays_in_the_name():
    files = fsspec.filesystem("memory")
    name = uuid.uuid4().hex
    folder = open_folder(f"memory://my_conn@{name}/results", filesystem=files)
    folder.put("a.json", iter([b"{}"]))
    assert folder.uri == f"memory://my_conn@{name}/results"
    assert files.cat_file(f"/{name}/results/a.json") == b"{}"


@pytest.mark.parametrize("url", ["nowhere://bucket/results", "s4://bucket"])
def test_a_url_of_no_known_file_system_says_what_to_install(url: str):
    with pytest.raises(ConfigurationError, match=r"cannot be opened: .*Install the driver"):
        open_folder(url)


def test_folders_below_are_no_files(memory: Callable[..., ObjectFolder]):
    folder = memory()
    folder.put("a.json", iter([b"{}"]))
    folder.put("below/b.json", iter([b"{}"]))
    assert folder.names() == ["a.json"]
