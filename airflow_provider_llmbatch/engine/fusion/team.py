"""The processes that work on one run together, or the one that works alone: what differs between the two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from airflow_provider_llmbatch.engine.fusion.batch import Batch
from airflow_provider_llmbatch.engine.fusion.dist import (
    Group,
    add_gradients,
    add_up,
    gather_v,
    wait_for_all,
)
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.spread import Spread, spread_encode


@dataclass(frozen=True, slots=True)
class Team:
    """
    The processes of a run.

    All of them call the same methods in the same order, but for :attr:`leads` and :meth:`share`.

    :param group: how they reach each other; None for one that works alone.
    """

    group: Group | None = None

    @property
    def size(self) -> int:
        """How many processes there are."""
        return 1 if self.group is None else self.group.size

    @property
    def leads(self) -> bool:
        """Whether this is the one that stores what there is once."""
        return self.group is None or self.group.rank == 0

    def has(self, number: int) -> bool:
        """Whether the thing of that number is this one's."""
        return self.group is None or number % self.group.size == self.group.rank

    def share(self, count: int) -> list[int]:
        """Return which of so many things are this one's."""
        return [number for number in range(count) if self.has(number)]

    def total(self, values: Tensor) -> Tensor:
        """Return the sum over all processes, without gradients."""
        return values.detach() if self.group is None else add_up(values, self.group)

    def gather(self, values: Tensor) -> Tensor:
        """Return the rows of all processes, the same in each of them; without gradients."""
        if self.group is None:
            return values
        return torch.cat(gather_v(values.detach(), self.group))

    def encode(self, graph: FusionGraph, batch: Batch, plan: Plan) -> Spread:
        """Encode the batches of all; with others the work on volumes and patches is spread evenly."""
        if self.group is None:
            return Spread(vectors=graph.encode(batch, plan), anchor=None)
        return spread_encode(graph, batch, plan, self.group)

    def exchange(self, parameters: Iterable[Tensor]) -> None:
        """Add gradients up over all processes."""
        if self.group is not None:
            add_gradients(parameters, self.group)

    def wait(self) -> None:
        """Return when all have come here."""
        if self.group is not None:
            wait_for_all(self.group)

    @contextmanager
    def one_first(self) -> Iterator[None]:
        """Let the one that leads do something before the others do it."""
        if not self.leads:
            self.wait()
        yield
        if self.leads:
            self.wait()
