"""
What fusion costs and what it is worth: ``make bench-fusion`` writes ``build/bench-fusion.json``.

Gates are on what is counted (operations, bytes, copies, rows) and on the planted cohort. Seconds are of this
machine and its load, and are told, not judged. Nothing here has run on a GPU.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch

from airflow_provider_llmbatch.engine.fusion.batch import Arena, collate
from airflow_provider_llmbatch.engine.fusion.encoders.recompute import set_recompute
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.hardware import Plan, plan, probe
from airflow_provider_llmbatch.engine.fusion.model import fresh
from airflow_provider_llmbatch.engine.fusion.policy import Training
from airflow_provider_llmbatch.engine.fusion.readers.dicom_audit import audit_series
from airflow_provider_llmbatch.engine.fusion.readers.dicom_load import load_series, to_grid
from airflow_provider_llmbatch.engine.fusion.readers.wsi import open_slide, patch_grid, read_patches
from airflow_provider_llmbatch.engine.fusion.schema import Schema, read_schema
from airflow_provider_llmbatch.simulator.cohort import (
    Sizes,
    body,
    make_cohort,
    tissue,
    write_series,
    write_slide,
)
from tests.engine.fusion.bench_ranks import balance, pruning, two_processes, worth_of_pruned
from tests.engine.fusion.conftest import SCHEMA
from tests.engine.fusion.counting import (
    PLAIN,
    Copies,
    batch_of,
    flops,
    made_up,
    presence,
    saved_bytes,
    zero_filled,
)
from tests.engine.fusion.worth import best_single, mean, read_cohort, worth

OUT = Path("build/bench-fusion.json")
RATES = ((1.0, 1.0, 1.0), (0.67, 0.67, 0.75), (0.42, 0.25, 0.67), (0.25, 0.25, 0.92))
RECORDS = 24
#: Sizes of the models' defaults, with fewer patches.
WHOLE = read_schema(
    {"ct": {"kind": "ct"}, "wsi": {"kind": "wsi", "max_patches": 4}, "notes": {"kind": "note"}}
)
#: 32 records of real sizes: a volume of 96 x 192 x 192, 64 patches of 512 x 512, a note.
REFERENCE = read_schema(
    {
        "ct": {"kind": "ct", "shape": [96, 192, 192]},
        "wsi": {"kind": "wsi", "patch_px": 512, "max_patches": 64},
        "notes": {"kind": "note"},
    }
)


def seconds(work: Callable[[], Any], times: int = 3) -> float:
    """Return the least seconds of a few runs."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return round(min(found), 4)


def presences() -> list[dict[str, Any]]:
    """Count CT and slides at rates of presence, against a batch with zeros and records one by one."""
    pictures = Schema(WHOLE.modalities[:2])
    graph = fresh(pictures, seed=0)
    found = []
    for rates in RATES:
        there = presence(RECORDS, rates)[:, :2]
        records = [each for each in made_up(pictures, there) if each]
        dense = zero_filled(pictures, made_up(pictures, there))
        sparse_flops = flops(lambda records=records: graph(batch_of(pictures, records), PLAIN))
        dense_flops = flops(lambda dense=dense: graph(batch_of(pictures, dense), PLAIN))
        found.append(
            {
                "presence": rates,
                "rows": {
                    "ct": int(there[:, 0].sum()),
                    "wsi": int(there[:, 1].sum()),
                    "zero_filled": 2 * RECORDS,
                },
                "gflop": round(sparse_flops / 1e9, 2),
                "gflop_zero_filled": round(dense_flops / 1e9, 2),
                "fewer": round(dense_flops / sparse_flops, 2),
                "seconds": seconds(lambda records=records: _run(graph, pictures, records), 1),
                "seconds_zero_filled": seconds(lambda dense=dense: _run(graph, pictures, dense), 1),
                "seconds_one_by_one": seconds(
                    lambda records=records: [_run(graph, pictures, [each]) for each in records], 1
                ),
            }
        )
    return found


def _run(graph: FusionGraph, schema: Schema, records: list[dict[str, np.ndarray]], plan: Plan = PLAIN) -> Any:
    with torch.inference_mode():
        return graph(batch_of(schema, records), plan)


def equality() -> float:
    """Return the largest difference between a record's embedding in a batch and alone."""
    schema = read_schema(SCHEMA)
    graph = fresh(schema, seed=0)
    patterns = [[bool(n & 1), bool(n & 2), bool(n & 4)] for n in range(1, 8)]
    records = made_up(schema, [patterns[n % 7] for n in range(64)])
    together = _run(graph, schema, records).embedding
    alone = torch.cat([_run(graph, schema, [each]).embedding for each in records])
    return float((together - alone).abs().max())


def copies() -> dict[str, Any]:
    """Count the copies of a batch to a device, and the bytes of the reference batch."""
    schema = read_schema(SCHEMA)
    records = made_up(schema, [[True] * 3] * 8)
    with Copies() as ours:
        batch_of(schema, records).to_device(torch.device("meta"))
    with Copies() as theirs:
        for spec in schema:
            arrays = [torch.from_numpy(np.ascontiguousarray(each[spec.name])) for each in records]
            torch.stack(arrays).float().to("meta")
    numbers = {
        spec.name: 32 * int(np.prod(spec.shape)) * (spec["max_patches"] if spec.kind == "wsi" else 1)
        for spec in REFERENCE
    }
    ours_bytes = sum(count * REFERENCE[name].width for name, count in numbers.items())
    theirs_bytes = 4 * sum(numbers.values())
    return {
        "copies": ours.count,
        "copies_of_a_dict": theirs.count,
        "reference_gb": round(ours_bytes / 1e9, 3),
        "reference_gb_float32": round(theirs_bytes / 1e9, 3),
        "share": round(ours_bytes / theirs_bytes, 3),
        "seconds_collate": seconds(lambda: collate(schema, records, Arena())),
    }


def reading(folder: Path) -> dict[str, float]:
    """Tell how long it takes to read: a CT of 64 slices, 32 patches of a slide."""
    chance = np.random.default_rng(0)
    sizes = Sizes(slices=64, side=256, slide_px=2048)
    write_series(folder / "ct", body(chance, sizes, lesion=True), (2, 1, 1))
    write_slide(folder / "slide.tiff", tissue(chance, sizes, purple=True), 0.25, levels=3)

    def patches() -> None:
        with open_slide(folder / "slide.tiff") as slide:
            grid = patch_grid(slide, target_mpp=0.5, patch_px=128, max_patches=32, seed=0)
            read_patches(slide, grid, 128)

    audit = audit_series(folder / "ct")
    volume = load_series(audit)
    return {
        "ct_headers_64_slices": seconds(lambda: audit_series(folder / "ct")),
        "ct_decode_64_slices": seconds(lambda: load_series(audit)),
        "ct_to_grid": seconds(lambda: to_grid(volume, (48, 96, 96), (5, 4, 4))),
        "slide_32_patches": seconds(patches),
    }


def number_types() -> dict[str, float]:
    """Tell how fast this CPU is in each number type, which is why the plan takes the one it takes."""
    graph = fresh(WHOLE, seed=0)
    records = made_up(WHOLE, [[True] * 3] * 4)
    kinds = ("ct", "wsi", "note")
    return {
        dtype: seconds(
            lambda dtype=dtype: _run(graph, WHOLE, records, Plan(dtypes=dict.fromkeys(kinds, dtype))), 2
        )
        for dtype in ("float32", "bfloat16")
    }


def memory() -> dict[str, Any]:
    """Count what a step keeps between the layers, plain and lean; tell how long a step takes."""
    graph = fresh(WHOLE, seed=0).train()
    records = made_up(WHOLE, [[True] * 3] * 4)
    batch = batch_of(WHOLE, records)
    # Volumes stay in single precision on a CPU; without matrix units its plan has all in that.
    half = Plan(dtypes=dict.fromkeys(("wsi", "note"), "bfloat16"))

    def step(plan: Plan) -> None:
        graph(batch, plan).outputs.sum().backward()

    plain, plain_s = saved_bytes(lambda: graph(batch, PLAIN).outputs), seconds(lambda: step(PLAIN))
    for encoder in graph.encoders.values():
        set_recompute(encoder, True)
    again, again_s = saved_bytes(lambda: graph(batch, PLAIN).outputs), seconds(lambda: step(PLAIN))
    lean, lean_s = saved_bytes(lambda: graph(batch, half).outputs), seconds(lambda: step(half))
    return {
        "saved_mb": {name: round(size / 1e6, 1) for name, size in (("plain", plain), ("again", again))},
        "share": round(again / plain, 3),
        "share_with_bfloat16": round(lean / plain, 3),
        "seconds": {"plain": plain_s, "again": again_s, "again_with_bfloat16": lean_s},
        "times": round(again_s / plain_s, 2),
    }


def worths(folder: Path) -> dict[str, Any]:
    """Train on five cohorts, with encoders as they are, and measure each model on another of 400 records."""
    test = read_cohort(make_cohort(folder / "test", 400, seed=300))
    encoders = ("ct", "wsi", "notes")
    cohorts = [read_cohort(make_cohort(folder / f"train-{seed}", 125, seed=200 + seed)) for seed in range(5)]
    found = [
        worth(train, test, seed=seed, training=Training(), frozen=encoders)
        for seed, train in enumerate(cohorts)
    ]
    pruned = worth_of_pruned(cohorts[0], test, seeds=3, training=Training(epochs=4))
    return {"train": 125, "test": len(test), "mean": mean(found), "seeds": found, "pruned": pruned}


def main() -> int:
    """Run all, write the file, judge the gates; returns the exit status."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found: dict[str, Any] = {
            "machine": {"cpu": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]},
            "torch": torch.__version__,
            "plan": plan(probe("cpu")).to_json(),
            "copies": copies(),
            "largest_difference_to_alone": equality(),
            "presence": presences(),
            "seconds_reading": reading(folder),
            "seconds_by_number_type": number_types(),
            "memory": memory(),
            "balance": balance(),
            "two_processes": two_processes(),
            "pruning": pruning(WHOLE),
            "worth": worths(folder),
            "not_measured": "GPU: copies beside computing, side streams, channels last, half precision",
        }
    found["gates"] = gates(found)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1), encoding="utf-8")
    for name, passed in found["gates"].items():
        print(f"bench-fusion: {'ok    ' if passed else 'FAILED'} {name}")
    good = all(found["gates"].values())
    print(f"bench-fusion: {'ok' if good else 'FAILED'}, see {OUT}")
    return 0 if good else 1


def gates(found: dict[str, Any]) -> dict[str, bool]:
    """Judge what is counted."""
    fused, zeros = found["worth"]["mean"]["fused"], found["worth"]["mean"]["zero_filled"]
    half, half_zeros = fused["half missing"], zeros["half missing"]
    sparse = found["presence"][-1]
    two, smaller = found["two_processes"], found["pruning"].values()
    return {
        "one copy a batch": found["copies"]["copies"] == 1,
        "bytes at most 0.30 of float32": found["copies"]["share"] <= 0.30,
        "rows as alone to 1e-5": found["largest_difference_to_alone"] <= 1e-5,
        "a third of the operations at presence (.25, .25, .92)": sparse["fewer"] >= 3,
        "lean plan keeps at most 0.58 of the bytes": found["memory"]["share"] <= 0.58,
        "loads at most 1.10 of the mean": max(each["spread_largest"] for each in found["balance"]) <= 1.10,
        "two processes as one to 1e-6": max(
            two["largest_difference_of_outputs"], two["largest_difference_of_gradients"]
        )
        <= 1e-6,
        "half of the channels are at most 0.30 of parameters and operations": max(
            share for each in smaller for share in each.values()
        )
        <= 0.30,
        "half of the channels cost at most 0.02 of AUROC": found["worth"]["pruned"]["loss"] <= 0.02,
        "fused 0.05 above the best modality": fused["ct+wsi+notes"]["auroc"] >= best_single(fused) + 0.05,
        "half missing: AUROC 0.02 above a dense batch of zeros": half["auroc"] >= half_zeros["auroc"] + 0.02,
        "half missing: log loss 0.02 below a dense batch of zeros": half["log_loss"]
        <= half_zeros["log_loss"] - 0.02,
    }


if __name__ == "__main__":
    sys.exit(main())
