"""Layers that keep what goes into each of them and compute what lies between again, when a gradient asks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def recomputed(layer: nn.Module, *values: Any) -> Tensor:
    """
    Return what a layer gives, keeping only what goes in.

    The second computation runs in the number type of the first, whatever surrounds it then. Layers here have
    no dropout, so no state of chance is kept.
    """
    found: Tensor = checkpoint(layer, *values, use_reentrant=False, preserve_rng_state=False)
    return found


class Blocks(nn.Sequential):
    """Blocks one behind the other; with :attr:`recompute` each keeps only what goes into it."""

    recompute = False

    def forward(self, values: Tensor) -> Tensor:
        """Return what the last block gives."""
        for block in self:
            again = self.recompute and torch.is_grad_enabled()
            values = recomputed(block, values) if again else block(values)
        return values


class Layers(nn.ModuleList):
    """Layers that share a mask; with :attr:`recompute` each keeps only what goes into it."""

    recompute = False

    def through(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return what the last layer gives."""
        for layer in self:
            again = self.recompute and torch.is_grad_enabled()
            tokens = recomputed(layer, tokens, mask) if again else layer(tokens, mask)
        return tokens


def set_recompute(encoder: nn.Module, recompute: bool) -> None:
    """Say of an encoder whether its blocks and layers are computed again."""
    for part in encoder.modules():
        if isinstance(part, Blocks | Layers):
            part.recompute = recompute
