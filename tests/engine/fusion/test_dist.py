"""Two processes: what they exchange, that they agree with one process, and how they end when one is gone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import torch
from safetensors.torch import load_file

from airflow_provider_llmbatch.engine.fusion.encoders.wsi2d import Wsi2d
from airflow_provider_llmbatch.engine.fusion.ranks import lead
from airflow_provider_llmbatch.engine.fusion.team import Team
from tests.engine.fusion import rank_work
from tests.engine.fusion.counting import PLAIN, batch_of
from tests.engine.fusion.tiny import text_model

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, str(Path(rank_work.__file__))]
#: Largest difference to one process.
CLOSE = 1e-6


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Run all in one start of two processes, of which the second is killed in the end."""
    folder = tmp_path_factory.mktemp("ranks")
    text_model(folder / "text")
    return folder, *lead(COMMAND, {"folder": str(folder)}, 2, print)


@pytest.fixture(scope="module")
def done(ended):
    """Return the folder of the results."""
    folder, _, last = ended
    assert (folder / "1.json").exists(), last
    return folder


@pytest.fixture(scope="module")
def words(done):
    return [json.loads((done / f"{rank}.json").read_text()) for rank in range(2)]


def compare(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert (found[name] - value).abs().max() <= CLOSE, name


@pytest.mark.parametrize("case", rank_work.CASES)
def test_outputs_and_gradients_are_those_of_one_process(done, case):
    shares = rank_work.records_of(case)
    graph = rank_work.graph()
    records = [record for share in shares for record in share]
    outputs = graph(batch_of(rank_work.SCHEMA, records), PLAIN).outputs
    rank_work.loss_of(outputs, len(records)).backward()
    found = [load_file(done / f"{case}-{rank}.safetensors") for rank in range(2)]
    together = torch.cat([each.pop("outputs") for each in found])
    assert (together - outputs).abs().max() <= CLOSE
    expected = {f"gradient.{name}": value for name, value in rank_work.gradients_of(graph).items()}
    for each in found:
        compare(each, expected)


def test_a_process_that_lacks_a_modality_keeps_nobody_waiting(words):
    assert max(max(each["seconds"].values()) for each in words) < 15


def test_a_row_without_numbers_in_one_process_stops_the_step_of_its_branch_in_both(done, words):
    alone = rank_work.poisoned_step(Team(), done / "text")
    assert alone["skipped"] == alone["non_finite"] == {"notes": 1}
    for each in words:
        found = each["poisoned"]
        assert (found["skipped"], found["non_finite"]) == (alone["skipped"], alone["non_finite"])
        assert found["loss"] == pytest.approx(alone["loss"], abs=CLOSE)
        assert torch.tensor(found["moved"][0]).allclose(torch.tensor(alone["moved"][0]), atol=CLOSE)
        assert torch.tensor(found["moved"][1]).allclose(torch.tensor(alone["moved"][1]), atol=CLOSE)


def test_empty_bags_are_zeros_and_others_are_as_in_one_process(done):
    torch.manual_seed(0)
    encoder = Wsi2d()
    patches = torch.cat([rank_work.patches_of(rank) for rank in range(2)])
    vectors = encoder(patches, [rows for bags in rank_work.BAGS for rows in bags])
    rank_work.bag_loss_of(vectors).backward()
    found = [load_file(done / f"bags-{rank}.safetensors") for rank in range(2)]
    together = torch.cat([each.pop("vectors") for each in found])
    assert (together - vectors).abs().max() <= CLOSE
    assert not together[[1, 3]].any()
    for each in found:
        compare(each, {f"gradient.{name}": value for name, value in rank_work.gradients_of(encoder).items()})


def test_rows_of_every_type_go_to_whom_they_are_sent(words):
    for kind in ("float32", "bfloat16", "int16", "uint8", "int64"):
        assert words[0]["exchanges"][f"torch.{kind}"] == [[[[10, 11]], [[12, 13]]], [0, 2], [2, 1, 2]]
        assert words[1]["exchanges"][f"torch.{kind}"] == [[[[0, 1]], [[2, 3]], [[4, 5]]], [3, 0], [3, 1, 2]]
    for each in words:
        assert each["exchanges"]["gathered"] == [[], [0]]
        assert each["exchanges"]["nothing"] == [0, 4]


def test_a_mistake_of_one_process_is_an_error_in_both_and_nothing_has_moved(words):
    assert words[0]["mistakes"] == words[1]["mistakes"]
    said = words[0]["mistakes"]
    assert "Process 1 has 5 rows, and its splits [2, 2] send 4" in said["sum"]
    assert "another number of processes than 2" in said["count"]
    assert "Process 1 has a split below 0" in said["negative"]
    assert "Process 1 sends float32 elements of (3,), process 0 float32 elements of (2,)" in said["shape"]
    assert "Process 1 sends float16" in said["type"]
    assert "type that is not exchanged" in said["unknown"]
    assert said["after"] == 2


def test_when_one_process_is_killed_the_other_says_so_and_both_end(ended):
    folder, status, last = ended
    assert (status, last["kind"]) == (-9, "lost")
    assert "Process 1 of 2 ended without a word, status -9 (killed" in last["words"]
    assert "Process 0 of 2 lost another one while" in (folder / "heard").read_text()


#: What processes say and do, by their number: no torch, for it is the start and the end that count here.
PROGRAM = """
import json, sys, threading, time
own = json.loads(sys.stdin.readline())["rank"]
words = [json.loads(each) for each in sys.argv[1:]][own["rank"]]
print(json.dumps({"event": "progress", "rank": own["rank"]}), flush=True)
print(json.dumps(words), flush=True)
if words["event"] == "asleep":
    sys.stdin.read()
sys.exit(0 if words["event"] == "done" else 11)
"""
DONE, ASLEEP = {"event": "done", "manifest": {}}, {"event": "asleep"}
LOST = {"event": "failed", "kind": "lost", "words": "another one is gone"}
REASON = {"event": "failed", "kind": "input", "words": "no labels"}


def saying(*words: dict) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *map(json.dumps, words)]


@pytest.mark.parametrize(
    ("words", "status", "last"),
    [
        ([{**DONE, "of": 0}, {**DONE, "of": 1}], 0, {**DONE, "of": 0}),
        ([LOST, REASON], 11, REASON),
        ([REASON, LOST], 11, REASON),
        ([LOST, LOST], 11, LOST),
        ([DONE, REASON], 11, REASON),
    ],
)
def test_what_is_told_is_why_the_first_one_failed_and_not_that_others_lost_it(words, status, last):
    heard: list[dict] = []
    assert lead(saying(*words), {}, 2, heard.append) == (status, last)
    assert heard == [{"event": "progress", "rank": 0}]


def test_one_that_waits_is_ended_when_another_has_failed():
    began = time.monotonic()
    assert lead(saying(ASLEEP, REASON), {}, 2, print, grace_s=0.5) == (11, REASON)
    assert time.monotonic() - began < 10


LEADER = """
import json, sys
from airflow_provider_llmbatch.engine.fusion.ranks import lead
lead(json.loads(sys.argv[1]), {}, 2, lambda event: print(event, flush=True))
"""


def test_processes_leave_with_the_one_that_started_them():
    command = json.dumps(saying(ASLEEP, ASLEEP))
    leader = psutil.Popen([sys.executable, "-c", LEADER, command], stdout=subprocess.PIPE)
    assert b"progress" in leader.stdout.readline()
    both = leader.children()
    assert len(both) == 2
    leader.kill()
    leader.communicate()
    _, alive = psutil.wait_procs(both, timeout=5)
    assert not alive
