"""Vectors of examples by encoders as they are now, where a training has changed them."""

from __future__ import annotations

import torch
from torch import Tensor

from airflow_provider_llmbatch.engine.fusion.batch import Arena, collate
from airflow_provider_llmbatch.engine.fusion.examples import Load, Vectors
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.team import Team


def encode_all(graph: FusionGraph, load: Load, count: int, plan: Plan, team: Team) -> dict[str, Vectors]:
    """
    Return the vectors of all examples, by modality that ``load`` decodes; what is not finite is missing.

    :param load: decodes what is encoded anew.
    :param count: how many examples there are.
    :param team: each process encodes its share, and all get all.
    """
    mine = torch.tensor(team.share(count), dtype=torch.int64)
    batches = [batch.tolist() for batch in mine.split(plan.batch)]
    values: dict[str, list[Tensor]] = {name: [] for name in graph.schema.names}
    examples: dict[str, list[int]] = {name: [] for name in graph.schema.names}
    graph.eval()
    with torch.no_grad():
        for chosen, arrays in zip(batches, load(batches), strict=True):
            batch = collate(graph.schema, arrays, Arena(pinned=plan.pinned))
            found = graph.encode(batch.to_device(torch.device(plan.device)), plan)
            for name, vectors in found.items():
                values[name].append(vectors.float().cpu())
                examples[name] += [chosen[row] for row in batch.parts[name].rows]
    whole = {name: _whole(graph, name, values[name], examples[name], count, team) for name in values}
    return {name: found for name, found in whole.items() if found is not None}


def _whole(
    graph: FusionGraph, name: str, values: list[Tensor], examples: list[int], count: int, team: Team
) -> Vectors | None:
    """Return the vectors of all processes; None where no example has the modality."""
    width = graph.encoders[name].width
    assert isinstance(width, int)
    vectors = team.gather(torch.cat([torch.zeros(0, width), *values]))
    owners = team.gather(torch.tensor(examples, dtype=torch.int64))
    if not len(owners):
        return None
    good = torch.isfinite(vectors).all(dim=1)
    places = torch.full((count,), -1)
    places[owners[good]] = torch.nonzero(good).squeeze(1)
    return Vectors(values=vectors, places=places)
