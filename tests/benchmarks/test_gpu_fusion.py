"""The script for GPUs runs in small on a CPU, so that it need not be mended where time on a GPU is short."""

from __future__ import annotations

import json

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import torch

from tests.benchmarks import gpu_fusion


@pytest.mark.slow
def test_every_part_runs_in_small_and_nothing_is_judged(capsys):
    assert gpu_fusion.main(["--dry"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["figures"]) == set(gpu_fusion.TARGETS)
    assert found["met"] is None
    assert found["figures"]["peak_memory_share_of_float32"] is None
    assert found["figures"]["float32_difference_to_cpu"] == 0
    assert set(found["step"]) == {"float32", "bfloat16", "lean"}
    assert found["step"]["lean"]["kept_bytes"] < found["step"]["float32"]["kept_bytes"]
    assert found["end_to_end"]["records_per_s"] > 0


def test_what_was_not_measured_or_misses_its_target_is_not_met():
    good = {name: limit for name, (_, limit) in gpu_fusion.TARGETS.items()}
    assert all(gpu_fusion.judged(good).values())
    assert not gpu_fusion.judged({**good, "copy_times_faster": 2.4})["copy_times_faster"]
    assert not gpu_fusion.judged({**good, "copy_bytes_share": 0.31})["copy_bytes_share"]
    assert not gpu_fusion.judged({**good, "exposed_copy_share": None})["exposed_copy_share"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys):
    assert gpu_fusion.main([]) == 1
    assert "finds no GPU" in capsys.readouterr().out
