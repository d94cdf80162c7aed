"""
What is computed for a batch: one call of an encoder for all records that have its modality.

Absent modalities cost no row of an encoder. Which records have what is known before anything is computed;
nothing is chosen by a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from airflow_provider_llmbatch.engine.fusion.batch import Batch, Part
from airflow_provider_llmbatch.engine.fusion.encoders.registry import build, encode
from airflow_provider_llmbatch.engine.fusion.fuse import LatentFusion
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.precision import branch_autocast, finite_guard
from airflow_provider_llmbatch.engine.fusion.schema import Schema

#: Length of a token that the fusion reads.
WIDTH = 128


@dataclass(slots=True, kw_only=True)
class Fused:
    """What comes out for a batch."""

    #: (records, width)
    embedding: Tensor
    #: (records, outputs)
    outputs: Tensor
    #: (records, 1 + modalities), the learned token first
    attention: Tensor
    #: (records, modalities) of bool: what was read
    present: Tensor
    #: what the encoders gave, by modality: (rows, width of the encoder)
    vectors: Mapping[str, Tensor]
    #: rows of each encoder that were not finite, and count as absent
    non_finite: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What the fusion reads of a batch."""

    #: (records, modalities, width); nothing is to be read of what is absent
    values: Tensor
    #: (records, modalities) of bool: what is there and finite
    present: Tensor
    #: rows of each encoder that were not finite
    non_finite: Mapping[str, int]


class Projection(nn.Module):
    """
    From an encoder's vectors to the fusion's tokens.

    :param inner: length of a vector.
    :param outer: length of a token.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        # Of the vectors that a model was fitted on; encoders differ in scale by orders of magnitude.
        self.register_buffer("mean", torch.zeros(inner))
        self.register_buffer("spread", torch.ones(inner))
        self.linear = nn.Linear(inner, outer)
        self.norm = nn.LayerNorm(outer)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (rows, outer) of (rows, inner)."""
        found: Tensor = self.norm(self.linear((vectors - self.mean) / self.spread))
        return found

    def standardise(self, vectors: Tensor) -> None:
        """Take mean and spread from vectors."""
        self.mean = vectors.mean(dim=0)
        self.spread = vectors.std(dim=0, correction=0).clamp_min(1e-6)


class FusionGraph(nn.Module):
    """
    Encoders, projections and fusion.

    :param schema: the modalities.
    :param outputs: of the prediction.
    """

    def __init__(self, schema: Schema, *, outputs: int = 1) -> None:
        super().__init__()
        self.schema = schema
        self.encoders = nn.ModuleDict({spec.name: build(spec) for spec in schema})
        self.projections = nn.ModuleDict(
            {name: Projection(_width(encoder), WIDTH) for name, encoder in self.encoders.items()}
        )
        self.fusion = LatentFusion(modalities=len(schema), width=WIDTH, outputs=outputs)
        #: number types of single branches, by modality, over those of the plan
        self.dtypes: Mapping[str, str] = {}

    def forward(self, batch: Batch, plan: Plan) -> Fused:
        """
        Run a batch that is on the plan's device.

        :param plan: number types by modality, and whether branches run beside each other.
        """
        rows = {name: part.rows for name, part in batch.parts.items()}
        return self.fuse(self.encode(batch, plan), rows, batch.size)

    def fuse(self, vectors: Mapping[str, Tensor], rows: Mapping[str, Sequence[int]], size: int) -> Fused:
        """
        Fuse vectors of encoders; those that are not finite count as absent.

        :param vectors: by modality, (rows, width of the encoder).
        :param rows: which records they belong to.
        :param size: how many records there are.
        """
        read = self.tokens(vectors, rows, size)
        embedding, outputs, attention = self.read(read.values, read.present)
        return Fused(
            embedding=embedding,
            outputs=outputs,
            attention=attention,
            present=read.present,
            vectors=vectors,
            non_finite=read.non_finite,
        )

    def tokens(self, vectors: Mapping[str, Tensor], rows: Mapping[str, Sequence[int]], size: int) -> Tokens:
        """Project vectors of encoders to what the fusion reads; parameters as of :meth:`fuse`."""
        device = self.fusion.null.device
        tokens = torch.zeros(size, len(self.schema), WIDTH, device=device)
        present = torch.zeros(size, len(self.schema), dtype=torch.bool, device=device)
        goods = {}
        for column, name in enumerate(self.schema.names):
            if name not in vectors:
                continue
            clean, good = finite_guard(vectors[name])
            place = (torch.tensor(rows[name], device=device), torch.tensor(column, device=device))
            with branch_autocast(device, "float32"):
                tokens = tokens.index_put(place, self.projections[name](clean))
            present = present.index_put(place, good)
            goods[name] = good
        lost = {} if device.type == "meta" else {name: int((~good).sum()) for name, good in goods.items()}
        return Tokens(
            values=tokens, present=present, non_finite={name: count for name, count in lost.items() if count}
        )

    def read(self, tokens: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Fuse tokens in single precision, whatever surrounds it; see :meth:`.fuse.LatentFusion.forward`."""
        with branch_autocast(tokens.device, "float32"):
            found: tuple[Tensor, Tensor, Tensor] = self.fusion(tokens, present)
        return found

    def encode(self, batch: Batch, plan: Plan) -> dict[str, Tensor]:
        """Return the vectors of each modality that is there; on a GPU each branch has a stream of its own."""
        device = self.fusion.null.device
        if not (plan.streams and device.type == "cuda"):
            return {name: self._branch(name, part, plan, device) for name, part in batch.parts.items()}
        main, vectors, ends = torch.cuda.current_stream(device), {}, []
        for name, part in batch.parts.items():
            side = torch.cuda.Stream(device)
            side.wait_stream(main)
            with torch.cuda.stream(side):
                vectors[name] = self._branch(name, part, plan, device)
            vectors[name].record_stream(main)
            ends.append(side)
        for side in ends:
            main.wait_stream(side)
        return vectors

    def _branch(self, name: str, part: Part, plan: Plan, device: torch.device) -> Tensor:
        with branch_autocast(device, self.dtypes.get(name) or plan.dtypes.get(part.spec.kind, "float32")):
            return encode(self.encoders[name], part)


def prepare(graph: FusionGraph, plan: Plan) -> FusionGraph:
    """Move a graph to the plan's device, its convolutions in the order of memory that the plan says."""
    graph = graph.to(plan.device)
    if plan.channels_last:
        for name, encoder in graph.encoders.items():
            kind = graph.schema[name].kind
            if kind in ("ct", "wsi"):
                order: Any = torch.channels_last_3d if kind == "ct" else torch.channels_last
                encoder.to(memory_format=order)  # type: ignore[call-overload]
    return graph


def _width(encoder: nn.Module) -> int:
    width = encoder.width
    assert isinstance(width, int)
    return width
