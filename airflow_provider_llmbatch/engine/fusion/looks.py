"""What a training sees of some examples: encoded once, looked at whole and with modalities hidden."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from airflow_provider_llmbatch.engine.fusion.batch import Arena, Ring, collate
from airflow_provider_llmbatch.engine.fusion.calibrate import losses_of
from airflow_provider_llmbatch.engine.fusion.examples import Arrays, Examples
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph, Tokens
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.policy import BranchPolicy, Training
from airflow_provider_llmbatch.engine.fusion.schema import Schema
from airflow_provider_llmbatch.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How a model is trained."""

    plan: Plan
    policies: Mapping[str, BranchPolicy]
    training: Training
    #: examples of a step
    batch: int
    seed: int


class Looks:
    """
    Looks at examples through a graph.

    :param graph: on the plan's device.
    """

    def __init__(self, graph: FusionGraph, examples: Examples, how: How) -> None:
        self._graph, self._examples, self._how = graph, examples, how
        self._device = torch.device(how.plan.device)
        self._ring = Ring(how.plan.arenas, pinned=how.plan.pinned)
        #: of what was looked at last, by modality: rows whose vectors were not finite
        self.broken: dict[str, int] = {}

    def tokens(
        self, chosen: Tensor, arrays: Sequence[Arrays], chance: torch.Generator | None = None
    ) -> Tokens:
        """
        Encode what is encoded anew, take the rest from the vectors, and project both.

        :param chosen: which examples.
        :param arrays: of each, what is encoded anew.
        :param chance: where noise comes from; None for none.
        """
        self.broken = {}
        vectors, rows = self._encoded(arrays, self._ring.take())
        for name in [name for name in vectors if not torch.isfinite(vectors[name].detach()).all()]:
            bad = ~torch.isfinite(vectors[name].detach()).all(dim=1)
            self.broken[name] = int(bad.sum())
            kept = {row for row, lost in zip(rows[name], bad.tolist(), strict=True) if not lost}
            del vectors[name], rows[name]
            self._encode_again(name, arrays, kept, vectors, rows)
        for name, policy in self._how.policies.items():
            if policy.frozen and name in self._examples.vectors:
                found, there = self._examples.vectors[name].of(chosen)
                if there:
                    vectors[name], rows[name] = found.to(self._device), there
        if chance is not None:
            self._disturb(vectors, rows, len(chosen), chance)
        return self._graph.tokens(vectors, rows, len(chosen))

    def _disturb(
        self,
        vectors: dict[str, Tensor],
        rows: Mapping[str, Sequence[int]],
        size: int,
        chance: torch.Generator,
    ) -> None:
        """Add noise; what is drawn for a row depends on no other row's being there."""
        for name, projection in self._graph.projections.items():
            spread = projection.spread
            assert isinstance(spread, Tensor)
            drawn = torch.randn(size, len(spread), generator=chance)
            if name in vectors:
                noise = drawn[list(rows[name])].to(self._device)
                vectors[name] = vectors[name].float() + self._how.training.noise * spread * noise

    def loss(self, read: Tokens, present: Tensor, chosen: Tensor) -> Tensor:
        """
        Return the mean loss; examples with nothing left do not count.

        :param present: what is not hidden: (examples, modalities) of bool.
        """
        targets = self._examples.targets[chosen].to(self._device)
        _, outputs, _ = self._graph.read(read.values, present)
        losses = losses_of(outputs, targets)
        counted = present.any(dim=1).float()
        return (losses * counted).sum() / counted.sum().clamp_min(1)

    def _encoded(
        self, arrays: Sequence[Arrays], arena: Arena
    ) -> tuple[dict[str, Tensor], dict[str, Sequence[int]]]:
        if not any(arrays):
            return {}, {}
        batch = collate(self._graph.schema, arrays, arena).to_device(self._device)
        rows: dict[str, Sequence[int]] = {name: part.rows for name, part in batch.parts.items()}
        return self._graph.encode(batch, self._how.plan), rows

    def _encode_again(
        self,
        name: str,
        arrays: Sequence[Arrays],
        kept: Collection[int],
        vectors: dict[str, Tensor],
        rows: dict[str, Sequence[int]],
    ) -> None:
        """
        Encode one modality without the rows that gave no numbers, and without learning from it.

        So all others get the bits that they would get if the modality were missing from these records: sums
        over other rows, and matrices of another height, may round otherwise.
        """
        alone = [{name: each[name]} if row in kept else {} for row, each in enumerate(arrays)]
        with torch.no_grad():
            again, there = self._encoded(alone, Arena(pinned=self._how.plan.pinned))
        vectors.update(again)
        rows.update(there)


def training_dtypes(schema: Schema, how: How) -> dict[str, str]:
    """
    Return the number type of each branch in training, by modality.

    :raises ConfigurationError: for a type whose gradients are wrong on the plan's device.
    """
    found = {}
    for spec in schema:
        policy = how.policies[spec.name]
        # On CPUs torch 2.13 returns memory nobody wrote as the gradient of the weights of 3-d convolutions in
        # half precision, where their output has one or two slices; the small volumes here end that way.
        wrong = spec.kind == "ct" and how.plan.device == "cpu" and not policy.frozen
        if wrong and policy.dtype not in (None, "float32"):
            raise ConfigurationError(
                f"policies, modality {spec.name!r}: dtype is {policy.dtype!r}, in which torch computes wrong "
                "gradients of 3-d convolutions on a CPU; leave dtype out, or train on a GPU."
            )
        usual = "float32" if wrong else how.plan.dtypes.get(spec.kind, "float32")
        found[spec.name] = policy.dtype or usual
    return found


def hide(present: Tensor, share: float, chance: torch.Generator) -> Tensor:
    """
    Hide some modalities of each record; a record that has any keeps at least one.

    :param present: (records, modalities) of bool.
    :param share: of the modalities that are hidden.
    """
    luck = torch.rand(present.shape, generator=chance).to(present.device).masked_fill(~present, -1.0)
    return present & ((luck >= share) | (luck == luck.max(dim=1, keepdim=True).values))
