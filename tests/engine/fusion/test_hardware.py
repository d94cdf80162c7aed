"""The plan of each device, as a table."""

from __future__ import annotations

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

from airflow_provider_llmbatch.engine.fusion.hardware import DeviceFacts, plan, probe
from airflow_provider_llmbatch.engine.fusion.opening import draw_plans
from airflow_provider_llmbatch.engine.fusion.spec import read_spec

HALF = {"ct": "bfloat16", "wsi": "bfloat16", "note": "bfloat16"}
AMX = frozenset({"amx_bf16", "avx512_bf16"})
GPU = {"channels_last": True, "pinned": True, "arenas": 3, "device": "cuda"}
TABLE = {
    "H100": (
        DeviceFacts(kind="cuda", name="H100", capability=(9, 0), memory_gib=80, cores=16),
        {"dtypes": HALF, "streams": True, "batch": 8, "decoders": 8, **GPU},
    ),
    "H200": (
        DeviceFacts(kind="cuda", name="H200", capability=(9, 0), memory_gib=141, cores=16),
        {"dtypes": HALF, "streams": True, "threads": 4, **GPU},
    ),
    "A100": (
        DeviceFacts(kind="cuda", name="A100", capability=(8, 0), memory_gib=40, cores=8),
        {"dtypes": HALF, "streams": True, "decoders": 7, **GPU},
    ),
    "MI300X": (
        DeviceFacts(kind="rocm", name="MI300X", arch="gfx942:sramecc+", memory_gib=192, cores=32),
        {"dtypes": HALF, "streams": True, **GPU},
    ),
    "8 GB card": (
        DeviceFacts(kind="cuda", name="RTX", capability=(8, 6), memory_gib=8, cores=8),
        {"dtypes": HALF, "streams": False, "batch": 8, **GPU},
    ),
    "2 GB card": (
        DeviceFacts(kind="cuda", name="small", capability=(8, 6), memory_gib=2, cores=8),
        {"dtypes": HALF, "batch": 3, **GPU},
    ),
    "old card": (
        DeviceFacts(kind="cuda", name="T4", capability=(7, 5), memory_gib=16, cores=4),
        {"dtypes": {}, "channels_last": False, "pinned": True},
    ),
    "CPU with AMX": (
        DeviceFacts(cores=32, flags=AMX),
        {"dtypes": HALF, "device": "cpu", "threads": 32, "pinned": False},
    ),
    "CPU without": (
        DeviceFacts(cores=8),
        {"dtypes": {}, "device": "cpu", "channels_last": False, "decoders": 7},
    ),
    "CPU that only stores bf16": (
        DeviceFacts(cores=8, flags=frozenset({"avx512_bf16"})),
        {"dtypes": {}, "device": "cpu"},
    ),
    "one core": (
        DeviceFacts(cores=1),
        {"dtypes": {}, "device": "cpu", "threads": 1, "decoders": 1, "arenas": 2, "pinned": False},
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_each_device_gets_its_plan(name):
    facts, expected = TABLE[name]
    drawn = plan(facts)
    assert {key: getattr(drawn, key) for key in expected} == expected


@pytest.mark.parametrize("name", TABLE)
def test_no_device_computes_in_float16_and_the_reason_is_told(name):
    drawn = plan(TABLE[name][0])
    assert "float16" not in drawn.dtypes.values()
    assert drawn.reason


def test_what_is_asked_for_goes_before_what_the_plan_would_choose():
    drawn = plan(DeviceFacts(cores=8), batch=3, decoders=2)
    assert (drawn.batch, drawn.decoders) == (3, 2)


def test_a_training_is_offered_no_other_batch():
    asked = {"source": "unused", "result_path": "unused", "device": "cpu", "batch_size": 8}
    offered = {mode: draw_plans(read_spec({**asked, "mode": mode})) for mode in ("embed", "train")}
    assert {each.batch for each in offered["embed"]} == {8, 4}
    assert {each.batch for each in offered["train"]} == {8}
    assert offered["train"][0] == offered["embed"][0]


def test_this_machine_has_a_plan():
    assert plan(probe("cpu")).device == "cpu"
    assert plan(probe("auto")).to_json()["threads"] >= 1
