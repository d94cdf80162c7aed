"""CT: a small residual network over the volume. Starts from scratch: no weights are shipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from airflow_provider_llmbatch.engine.fusion.encoders.recompute import Blocks

#: Hounsfield units between which is looked at; raw ones overflow half precision.
WINDOW = (-1000.0, 1000.0)


class Block3d(nn.Module):
    """
    Two convolutions, halving each side, and a short cut. Groups, not batches, are normalised.

    :param inner: channels in.
    :param outer: channels out.
    """

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.first = nn.Conv3d(inner, outer, 3, stride=2, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(8, outer)
        self.second = nn.Conv3d(outer, outer, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(8, outer)
        self.short = nn.Conv3d(inner, outer, 1, stride=2, bias=False)

    def forward(self, volumes: Tensor) -> Tensor:
        """Return (n, outer, …) of (n, inner, …)."""
        found = F.relu(self.first_norm(self.first(volumes)))
        return F.relu(self.second_norm(self.second(found)) + self.short(volumes))


class Ct3d(nn.Module):
    """
    Volumes to vectors.

    :param channels: of the blocks.
    """

    def __init__(self, channels: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        self.blocks = Blocks(*(Block3d(a, b) for a, b in pairwise((1, *channels))))
        self.width = 2 * channels[-1]
        #: of a pruned encoder, by convolution: which output channels of the whole one it has
        self.kept: Mapping[str, Sequence[int]] = {}

    def forward(self, volumes: Tensor) -> Tensor:
        """
        Encode volumes.

        :param volumes: (n, 1, slices, rows, columns) of int16 Hounsfield units.
        :return: (n, width): means and largest values.
        """
        low, high = WINDOW
        scaled = (volumes.float().clamp(low, high) - low) / (high - low)
        found: Tensor = self.blocks(scaled).flatten(2)
        return torch.cat([found.mean(dim=2), found.amax(dim=2)], dim=1)
