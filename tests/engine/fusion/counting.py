"""What a computation costs, counted and not timed: copies, operations, rows of encoders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from airflow_provider_llmbatch.engine.fusion.balance import Piece
from airflow_provider_llmbatch.engine.fusion.batch import Arena, Batch, collate
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.schema import Schema

#: Float32 everywhere, on the CPU.
PLAIN = Plan()


class Copies(TorchDispatchMode):
    """Counts what moves from one device to another, and its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.copy_):
            source = args[1] if function.overloadpacket is torch.ops.aten.copy_ else args[0]
            if source.device != result.device:
                self.count += 1
                self.bytes += source.numel() * source.element_size()
        return result


def flops(compute: Callable[[], Any]) -> int:
    """Return how many floating point operations a computation has."""
    with FlopCounterMode(display=False) as counter:
        compute()
    return int(counter.get_total_flops())


def saved_bytes(compute: Callable[[], Any]) -> int:
    """Return the bytes that a computation keeps for its gradients, each storage once, weights left out."""
    kept: dict[int, int] = {}

    def pack(value: torch.Tensor) -> torch.Tensor:
        if not isinstance(value, torch.nn.Parameter):
            kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        result = compute()
    del result
    return sum(kept.values())


def rows_of_encoders(graph: FusionGraph, batch: Batch) -> dict[str, int]:
    """Run a batch, and return how many records each encoder gave a vector for."""
    with torch.inference_mode():
        return {name: len(vectors) for name, vectors in graph(batch, PLAIN).vectors.items()}


def made_up(schema: Schema, present: Sequence[Sequence[bool]], seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Return arrays for records of which the modalities are there that ``present`` says."""
    chance = np.random.default_rng(seed)
    return [
        {spec.name: _array(spec, chance) for spec, there in zip(schema, row, strict=True) if there}
        for row in present
    ]


def _array(spec: Any, chance: np.random.Generator) -> np.ndarray:
    if spec.kind == "ct":
        return chance.integers(-1000, 1000, spec.shape).astype(np.int16)
    if spec.kind == "wsi":
        return chance.integers(0, 255, (spec["max_patches"], *spec.shape)).astype(np.uint8)
    if spec.kind == "note":
        windows = np.zeros((1, 256), np.int32)
        windows[0, :24] = [101, *chance.integers(1000, 9000, 22), 102]
        return windows
    return np.asarray([[chance.integers(0, spec["buckets"]), 1.0]], np.float32)


def loads_of(pieces: Sequence[Piece], ranks: int) -> list[int]:
    """Return how many rows each process has."""
    loads = [0] * ranks
    for piece in pieces:
        loads[piece.rank] += piece.rows
    return loads


def batch_of(schema: Schema, records: Sequence[Mapping[str, np.ndarray]]) -> Batch:
    return collate(schema, records, Arena())


def zero_filled(schema: Schema, records: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """Return the records as a dense batch needs them: zeros for what is absent."""
    like = made_up(schema, [[True] * len(schema)])[0]
    return [{name: record.get(name, np.zeros_like(like[name])) for name in like} for record in records]


def presence(records: int, rates: Sequence[float], seed: int = 0) -> np.ndarray:
    """Return who has what, at exactly these rates; nobody has nothing."""
    chance = np.random.default_rng(seed)
    for _ in range(10_000):
        there = np.stack([chance.permutation(records) < round(rate * records) for rate in rates], axis=1)
        if there.any(axis=1).all():
            return there
    raise ValueError("the rates leave records with nothing")
