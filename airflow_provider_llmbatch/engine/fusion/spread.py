"""
Encoders over several processes: rows go where there is least to do, and vectors come home.

A process fuses its own records. Their volumes and patches are encoded wherever loads are even, at most a
tenth above the mean; notes and facts cost too little to be worth a journey.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from airflow_provider_llmbatch.engine.fusion.balance import Piece, balance_bags
from airflow_provider_llmbatch.engine.fusion.batch import Batch
from airflow_provider_llmbatch.engine.fusion.dist import Group, all_to_all_v, gather_v
from airflow_provider_llmbatch.engine.fusion.encoders.ct3d import Ct3d
from airflow_provider_llmbatch.engine.fusion.encoders.registry import encode
from airflow_provider_llmbatch.engine.fusion.encoders.wsi2d import Wsi2d
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.precision import branch_autocast

_Each = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What the encoders of all processes gave for the records of this one."""

    #: by modality that any of the records has, (rows, width)
    vectors: dict[str, Tensor]
    #: 0, and to be added to the loss: with it gradients find their way through every exchange; None where
    #: there is none
    anchor: Tensor | None


def spread_encode(graph: FusionGraph, batch: Batch, plan: Plan, group: Group) -> Spread:
    """
    Encode the batches of all processes together.

    :param batch: of this process, on its device; may lack any modality, or have no record at all.
    """
    vectors: dict[str, Tensor] = {}
    anchor = torch.zeros((), device=group.device)
    for spec in graph.schema:
        part = batch.parts.get(spec.name)
        encoder = graph.encoders[spec.name]
        dtype = graph.dtypes.get(spec.name) or plan.dtypes.get(spec.kind, "float32")
        with branch_autocast(group.device, dtype):
            if isinstance(encoder, Ct3d | Wsi2d):
                empty = torch.empty(0, *spec.shape, dtype=getattr(torch, spec.dtype), device=group.device)
                values, lengths = (empty, ()) if part is None else (part.values, part.lengths)
                found = spread_bags(encoder, values, lengths, group)
                anchor = anchor + found[:0].sum()
            elif part is not None:
                found = encode(encoder, part)
        if part is not None:
            vectors[spec.name] = found
    return Spread(vectors=vectors, anchor=anchor)


def spread_bags(encoder: Ct3d | Wsi2d, values: Tensor, lengths: Sequence[int], group: Group) -> Tensor:
    """
    Return the vectors of the bags of this process: (bags, width).

    All processes have to call this at the same time, one without bags too.

    :param values: rows of all bags, (rows, …).
    :param lengths: rows of each bag; a bag of none gets zeros.
    """
    each, pool = _halves(encoder)

    def encoded(some: Tensor) -> Tensor:
        # In single precision, which all processes have to send, also those without a row.
        return each(some).float() if len(some) else torch.zeros(0, encoder.width, device=some.device)

    everyone = [found.tolist() for found in gather_v(torch.tensor(lengths, dtype=torch.int64), group)]
    homes = [rank for rank, found in enumerate(everyone) for _ in found]
    pieces = balance_bags([rows for found in everyone for rows in found], group.size, homes)
    if all(piece.rank == homes[piece.bag] for piece in pieces):
        rows = encoded(values)
    else:
        rows = _rows_anywhere(encoded, values, lengths, (pieces, homes), group)
    return pool(rows, lengths) if lengths else rows


def _halves(encoder: Ct3d | Wsi2d) -> tuple[_Each, Callable[[Tensor, Sequence[int]], Tensor]]:
    """Return what an encoder does with each row, and what with those of a bag."""
    if isinstance(encoder, Wsi2d):
        return encoder.each, encoder.pool
    return encoder, lambda vectors, _: vectors


def _rows_anywhere(
    each: _Each, values: Tensor, lengths: Sequence[int], spread: tuple[list[Piece], list[int]], group: Group
) -> Tensor:
    """
    Send rows to where they are encoded, and return the vectors of the own ones in their order.

    :param spread: the pieces of all bags of all processes, and the home of each bag.
    """
    pieces, homes = spread
    first = bisect_left(homes, group.rank)
    starts = [0, *itertools.accumulate(lengths)]
    sent = [0] * group.size
    order: list[int] = []
    for piece in pieces:
        if homes[piece.bag] == group.rank:
            sent[piece.rank] += piece.rows
            start = starts[piece.bag - first]
            order += range(start + piece.start, start + piece.stop)
    went = torch.tensor(order, dtype=torch.int64, device=values.device)
    there, received = all_to_all_v(values[went], sent, group)
    home, _ = all_to_all_v(each(there), received, group)
    return home[went.argsort()]
