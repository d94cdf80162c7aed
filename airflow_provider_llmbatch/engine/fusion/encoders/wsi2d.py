"""Slides: a small residual network over patches, and attention over the patches of a slide. From scratch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from airflow_provider_llmbatch.engine.fusion.encoders.recompute import Blocks

#: Patches that are encoded at once: the memory between the layers is bounded by this, not by the batch.
AT_ONCE = 256


class Block2d(nn.Module):
    """
    Two convolutions, halving each side, and a short cut. Groups, not batches, are normalised.

    :param inner: channels in.
    :param outer: channels out.
    """

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride=2, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(8, outer)
        self.second = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(8, outer)
        self.short = nn.Conv2d(inner, outer, 1, stride=2, bias=False)

    def forward(self, patches: Tensor) -> Tensor:
        """Return (n, outer, …) of (n, inner, …)."""
        found = F.relu(self.first_norm(self.first(patches)))
        return F.relu(self.second_norm(self.second(found)) + self.short(patches))


class Wsi2d(nn.Module):
    """
    Bags of patches to vectors: gated attention (Ilse, Tomczak and Welling, 2018) within each bag.

    :param channels: of the blocks.
    """

    def __init__(self, channels: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        self.blocks = Blocks(*(Block2d(a, b) for a, b in pairwise((3, *channels))))
        self.width = channels[-1]
        #: of a pruned encoder, by convolution: which output channels of the whole one it has
        self.kept: Mapping[str, Sequence[int]] = {}
        self.gate = nn.Linear(self.width, 2 * 64)
        self.score = nn.Linear(64, 1)

    def forward(self, patches: Tensor, lengths: Sequence[int]) -> Tensor:
        """
        Encode bags.

        :param patches: (patches of all bags, 3, side, side) of uint8.
        :param lengths: patches of each bag.
        :return: (bags, width).
        """
        return self.pool(self.each(patches), lengths)

    def each(self, patches: Tensor) -> Tensor:
        """Encode patches one by one: (patches, 3, side, side) of uint8 to (patches, width)."""
        return torch.cat([self._encoded(part) for part in patches.split(AT_ONCE)])

    def pool(self, vectors: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return (bags, width) of the vectors of their patches; an empty bag gets zeros."""
        first, second = self.gate(vectors).chunk(2, dim=1)
        scores = self.score(torch.tanh(first) * torch.sigmoid(second)).squeeze(1)
        bags = [
            part_scores.softmax(dim=0) @ part
            for part, part_scores in zip(
                vectors.split(list(lengths)), scores.split(list(lengths)), strict=True
            )
        ]
        return torch.stack(bags)

    def _encoded(self, patches: Tensor) -> Tensor:
        found: Tensor = self.blocks(patches.float() / 255).mean(dim=(2, 3))
        return found
