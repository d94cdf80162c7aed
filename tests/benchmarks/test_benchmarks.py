from __future__ import annotations

import json

import pytest

from tests.benchmarks.__main__ import BENCHMARKS, TARGETS, main


def test_a_benchmark_can_be_run_alone_and_writes_what_it_measured_and_on_what(tmp_path, capsys):
    output = tmp_path / "new" / "bench.json"
    assert main(["--quick", "--only", "counting", "--output", str(output)]) == 0
    found = json.loads(output.read_text())
    assert found["count_per_s"] > 0
    assert {"machine", "python", "load", "libraries", "took_s"} <= set(found)
    assert "count_per_s" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["planning", "memory", "rollouts"])
def test_the_measured_paths_work_from_end_to_end(tmp_path, name):
    output = tmp_path / "bench.json"
    assert main(["--quick", "--only", name, "--output", str(output)]) == 0
    assert list(json.loads(output.read_text())["took_s"]) == [name]


def test_every_target_belongs_to_a_benchmark():
    assert set(BENCHMARKS) == {
        "counting",
        "planning",
        "rollouts",
        "throughput",
        "resume",
        "seed",
        "memory",
        "redis",
        "limits",
    }
    assert all(kind in (">=", "<=") for kind, _ in TARGETS.values())
