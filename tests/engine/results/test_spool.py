from __future__ import annotations

import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.results import read, resume
from airflow_provider_llmbatch.engine.results.names import PartName
from airflow_provider_llmbatch.engine.results.objects import ObjectFolder
from airflow_provider_llmbatch.engine.results.spool import Spool
from airflow_provider_llmbatch.errors import StoreError
from tests.engine.results.made import COST, finish, opened

ROOT = Path(__file__).parents[3]
URI = "memory://results"
#: Fills files of a spool, says so, and waits to be killed.
WRITER = """
import sys, time
from pathlib import Path
from airflow_provider_llmbatch.engine.results.names import parse
from airflow_provider_llmbatch.engine.results.spool import Spool
spool = Spool(Path(sys.argv[1]), sys.argv[2])
files = [spool.create(parse(name)) for name in sys.argv[3:]]
for file in files:
    file.append(f"{file.name}\\n".encode())
print("there", flush=True)
time.sleep(60)
"""


def write(root: Path, *names: str) -> subprocess.Popen[str]:
    """Start a process that fills files of the spool."""
    return started("-c", WRITER, str(root), URI, *names)


def started(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def taken(root: Path) -> list[tuple[str, bytes]]:
    with Spool(root, URI).left() as left:
        return [(str(name), lines) for name, lines in left]


def test_what_a_killed_process_has_left_is_found_once_the_ledger_first(tmp_path: Path):
    names = ["part-00000-1-10.jsonl", "part-00000-1-9.jsonl", "ledger-00000-1-10.jsonl"]
    process = write(tmp_path, *names)
    assert taken(tmp_path) == []
    kill(process)
    expected = ["ledger-00000-1-10.jsonl", "part-00000-1-9.jsonl", "part-00000-1-10.jsonl"]
    assert taken(tmp_path) == [(name, f"{name}\n".encode()) for name in expected]
    assert taken(tmp_path) == []


def test_of_two_that_look_at_once_one_finds_it(tmp_path: Path):
    kill(write(tmp_path, "part-00000-1-1.jsonl"))
    found: list[list[tuple[str, bytes]]] = []
    lookers = [threading.Thread(target=lambda: found.append(taken(tmp_path))) for _ in range(8)]
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join()
    assert sorted(map(len, found)) == [0] * 7 + [1]


def test_what_could_not_be_stored_stays(tmp_path: Path):
    kill(write(tmp_path, "part-00000-1-1.jsonl", "part-00000-1-2.jsonl"))

    def store() -> None:
        with Spool(tmp_path, URI).left() as left:
            for name, _ in left:
                if name.n == 2:
                    raise StoreError("the store is away")

    with pytest.raises(StoreError):
        store()
    assert [name for name, _ in taken(tmp_path)] == ["part-00000-1-2.jsonl"]


def test_a_line_that_was_cut_is_left_out(tmp_path: Path):
    spool = Spool(tmp_path, URI)
    file = spool.create(PartName(0, 1, 1))
    file.append(b"whole\nha")
    file.close()
    assert taken(tmp_path) == [("part-00000-1-1.jsonl", b"whole\n")]


def test_a_spool_is_seen_by_nobody_else(tmp_path: Path):
    spool = Spool(tmp_path / "spool", URI)
    file = spool.create(PartName(0, 1, 1))
    assert stat.S_IMODE(spool.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o1777
    assert Spool(tmp_path / "spool", "memory://other").path != spool.path
    file.remove()
    spool.tidy()
    assert not spool.path.exists()


def test_a_spool_that_is_somebody_elses_is_refused(tmp_path: Path):
    spool = Spool(tmp_path, URI)
    (tmp_path / "elsewhere").mkdir()
    spool.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="belongs to somebody else"):
        spool.create(PartName(0, 1, 1))


def test_a_host_without_a_place_for_a_spool_says_what_to_set(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"Cannot make the spool .*TMPDIR"):
        Spool(tmp_path / "file" / "spool", URI).create(PartName(0, 1, 1))


#: Finishes three items of a batch, sends a fourth, says so, and waits to be killed.
TRY = """
import sys, time
from pathlib import Path
import fsspec
from airflow_provider_llmbatch.engine.results.objects import ObjectFolder
from tests.engine.results.made import finish, opened
files = fsspec.filesystem("file", auto_mkdir=True)
store = opened(ObjectFolder("disk://results", files, sys.argv[1], spool_root=Path(sys.argv[2]), part_s=60))
for index in range(3):
    finish(store, index)
store.sent(3, 1)
print("there", flush=True)
time.sleep(60)
"""


@pytest.fixture
def reopen(tmp_path: Path) -> Callable[..., ObjectFolder]:
    """Return a function that opens a folder, on a file system that processes share."""
    files = fsspec.filesystem("file", auto_mkdir=True)

    def open_it(**options: Any) -> ObjectFolder:
        values = {"spool_root": tmp_path / "spool", "sleep": lambda _: None, **options}
        return ObjectFolder("disk://results", files, str(tmp_path / "results"), **values)

    return open_it


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Leave the spool of a try that was killed with three finished items in it; return it."""
    kill(started("-c", TRY, str(tmp_path / "results"), str(tmp_path / "spool")))
    return tmp_path / "spool"


def test_the_next_try_on_the_host_stores_what_was_left_exactly_once(reopen, left: Path):
    for _ in range(2):
        folder = reopen()
        assert [one.index for one in read.results(folder)] == [0, 1, 2]
        store = opened(folder)
        assert store.where.counts() == {Outcome.OK: 3, Outcome.UNSENT: 7}
        assert (store.totals.settled, store.totals.cost.usd) == (3, 3 * COST.usd)
        assert store.possible_double_paid == 1
        store.close()
    assert not list(left.glob("*/*"))


def test_a_part_that_was_stored_before_the_kill_is_not_stored_again(reopen, left: Path):
    content = {path.name: path.read_bytes() for path in left.glob("*/*")}
    reopen()
    spool = Spool(left, reopen(read_only=True).uri)
    spool.path.mkdir()
    for name, lines in content.items():
        (spool.path / name).write_bytes(lines)
    before = reopen(read_only=True).sizes()
    assert reopen().sizes() == before
    assert resume.spent(reopen())[1].usd == 3 * COST.usd
    assert not list(left.glob("*/*"))


def test_lines_under_a_name_that_others_have_taken_go_under_the_next(reopen, left: Path):
    folder = reopen(read_only=True)
    other = opened(reopen(spool_root=left.parent / "other host"), fence=2)
    finish(other, 5)
    other.close()
    with folder.open("part-00000-2-1.jsonl") as file:
        folder.put("part-00000-1-1.jsonl", iter([file.read()]))
    assert [one.index for one in read.results(reopen())] == [0, 1, 2, 5]
    assert "part-00000-1-2.jsonl" in reopen().names()


def test_another_host_knows_nothing_of_the_spool(reopen, left: Path):
    store = opened(reopen(spool_root=left.parent / "other host"))
    assert store.where.counts() == {Outcome.UNSENT: 10}
    assert store.possible_double_paid == 0
    store.close()


def test_a_look_leaves_the_spool_alone(reopen, left: Path):
    before = sorted(left.glob("*/*"))
    assert reopen(read_only=True).names() == ["chunk-00000.json", "ledger-00000-1-0.jsonl"]
    assert sorted(left.glob("*/*")) == before
