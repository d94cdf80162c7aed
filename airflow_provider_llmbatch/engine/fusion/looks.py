"""What a training sees of some examples: encoded once, looked at whole and with modalities hidden."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from airflow_provider_llmbatch.engine.fusion.batch import Arena, Ring, collate
from airflow_provider_llmbatch.engine.fusion.calibrate import losses_of
from airflow_provider_llmbatch.engine.fusion.examples import Arrays, Examples
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph, Tokens
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.policy import BranchPolicy, Training
from airflow_provider_llmbatch.engine.fusion.schema import Schema
from airflow_provider_llmbatch.engine.fusion.team import Team
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
    #: times that each example is seen
    epochs: int
    #: learning rate of projections and fusion
    head_rate: float
    #: by modality, shares of the channels that are gone before the first step
    prune: Mapping[str, float] = field(default_factory=dict)


class Looks:
    """
    Looks at examples through a graph.

    :param graph: on the plan's device.
    :param team: who looks at them together, each at its share.
    """

    def __init__(self, graph: FusionGraph, examples: Examples, how: How, team: Team) -> None:
        self._graph, self._examples, self._how, self._team = graph, examples, how, team
        self._device = torch.device(how.plan.device)
        self._ring = Ring(how.plan.arenas, pinned=how.plan.pinned)
        self._encodes = any(not policy.frozen for policy in how.policies.values())
        #: of what was looked at last, by modality: rows of all processes whose vectors were not finite
        self.broken: dict[str, int] = {}
        #: of what was looked at last: see :class:`.spread.Spread`
        self._anchor: Tensor | None = None

    def tokens(
        self, chosen: Tensor, arrays: Sequence[Arrays], chance: torch.Generator | None = None
    ) -> Tokens:
        """
        Encode what is encoded anew, take the rest from the vectors, and project both.

        :param chosen: which examples, those of all processes.
        :param arrays: of each that is this one's, what is encoded anew.
        :param chance: where noise comes from; None for none.
        :return: of the examples that are this one's.
        """
        mine = self._team.share(len(chosen))
        vectors, rows = self._encoded(arrays, self._ring.take())
        lost = {name: _lost(vectors[name], rows[name]) for name in vectors}
        self.broken = self._counted(lost)
        for name in self.broken:
            kept = set(rows.pop(name, ())) - lost.get(name, set())
            vectors.pop(name, None)
            self._encode_again(name, arrays, kept, vectors, rows)
        for name, policy in self._how.policies.items():
            if policy.frozen and name in self._examples.vectors:
                found, there = self._examples.vectors[name].of(chosen[mine])
                if there:
                    vectors[name], rows[name] = found.to(self._device), there
        if chance is not None:
            self._disturb(vectors, rows, len(chosen), chance)
        return self._graph.tokens(vectors, rows, len(mine))

    def hidden(self, present: Tensor, share: float, chance: torch.Generator, count: int) -> Tensor:
        """
        Hide some modalities of the examples that are this process's, as :func:`hide` would among all.

        :param count: how many examples all processes have.
        """
        return hide(present, share, chance, among=(count, self._team.share(count)))

    def _counted(self, lost: Mapping[str, Collection[int]]) -> dict[str, int]:
        """Return, by modality, how many rows are lost in all processes; none of those that have lost none."""
        if not self._encodes:
            return {}
        names = self._graph.schema.names
        own = torch.tensor([len(lost.get(name, ())) for name in names], device=self._device)
        counts = self._team.total(own).tolist()
        return {name: count for name, count in zip(names, counts, strict=True) if count}

    def _disturb(
        self,
        vectors: dict[str, Tensor],
        rows: Mapping[str, Sequence[int]],
        size: int,
        chance: torch.Generator,
    ) -> None:
        """Add noise; what is drawn for a row depends on no other row's being there, in whatever process."""
        mine = self._team.share(size)
        for name, projection in self._graph.projections.items():
            spread = projection.spread
            assert isinstance(spread, Tensor)
            drawn = torch.randn(size, len(spread), generator=chance)[mine]
            if name in vectors:
                noise = drawn[list(rows[name])].to(self._device)
                vectors[name] = vectors[name].float() + self._how.training.noise * spread * noise

    def loss(self, read: Tokens, present: Tensor, chosen: Tensor) -> Tensor:
        """
        Return the mean loss, or this process's part of it; examples with nothing left do not count.

        :param present: what is not hidden: (examples of this process, modalities) of bool.
        :param chosen: which examples, those of all processes.
        """
        mine = self._team.share(len(chosen))
        targets = self._examples.targets[chosen[mine]].to(self._device)
        _, outputs, _ = self._graph.read(read.values, present)
        losses = losses_of(outputs, targets)
        counted = present.any(dim=1).float()
        loss = (losses * counted).sum() / self._team.total(counted.sum()).clamp_min(1)
        return loss if self._anchor is None else loss + self._anchor

    def _encoded(
        self, arrays: Sequence[Arrays], arena: Arena
    ) -> tuple[dict[str, Tensor], dict[str, Sequence[int]]]:
        self._anchor = None
        if not self._encodes or (self._team.size == 1 and not any(arrays)):
            return {}, {}
        batch = collate(self._graph.schema, arrays, arena).to_device(self._device)
        rows: dict[str, Sequence[int]] = {name: part.rows for name, part in batch.parts.items()}
        found = self._team.encode(self._graph, batch, self._how.plan)
        self._anchor = found.anchor
        return dict(found.vectors), rows

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
        anchor = self._anchor
        with torch.no_grad():
            again, there = self._encoded(alone, Arena(pinned=self._how.plan.pinned))
        self._anchor = anchor
        vectors.update(again)
        rows.update(there)


def _lost(vectors: Tensor, rows: Sequence[int]) -> set[int]:
    """Return the rows whose vectors are not finite."""
    good = torch.isfinite(vectors.detach()).all(dim=1).tolist()
    return {row for row, fine in zip(rows, good, strict=True) if not fine}


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


def hide(
    present: Tensor,
    share: float,
    chance: torch.Generator,
    *,
    among: tuple[int, Sequence[int]] | None = None,
) -> Tensor:
    """
    Hide some modalities of each record; a record that has any keeps at least one.

    :param present: (records, modalities) of bool.
    :param share: of the modalities that are hidden.
    :param among: how many records it is drawn for, and which of them these are; None: these are all.
    """
    count, mine = among or (len(present), range(len(present)))
    drawn = torch.rand(count, present.shape[1], generator=chance)[list(mine)].to(present.device)
    luck = drawn.masked_fill(~present, -1.0)
    return present & ((luck >= share) | (luck == luck.max(dim=1, keepdim=True).values))
