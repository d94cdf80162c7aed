"""
Structured pruning of the encoders of pictures: channels are taken out, not set to zero.

Which channels go is found by torch-pruning (extra ``fusion-prune``): layers that are joined by a sum lose
the same ones, groups of a norm lose equally many, and of these the ones with the smallest weights. What is
left is a smaller encoder of the same kind, with a map that says which channels of the whole one it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from airflow_provider_llmbatch.engine.fusion.encoders.ct3d import Ct3d
from airflow_provider_llmbatch.engine.fusion.encoders.recompute import set_recompute
from airflow_provider_llmbatch.engine.fusion.encoders.wsi2d import Wsi2d
from airflow_provider_llmbatch.engine.fusion.errors import missing_library
from airflow_provider_llmbatch.engine.fusion.graph import WIDTH, FusionGraph, Projection
from airflow_provider_llmbatch.engine.fusion.policy import MOST_PRUNED, PRUNABLE
from airflow_provider_llmbatch.errors import ConfigurationError

#: Of each convolution, by its name in ``blocks``: which output channels of the whole encoder are left.
ChannelMap = Mapping[str, Sequence[int]]

#: Side of the input that the layers are followed with; four halvings leave more than one place.
_SIDE = 32


def prune(graph: FusionGraph, name: str, share: float) -> None:
    """
    Take channels out of the encoder of a modality, in place, and what they fed out of its projection.

    The share is rounded up to whole channels of each of the eight groups of a norm; a group keeps one. Scores
    change: train afterwards.

    :param name: the modality.
    :param share: of the output channels of each convolution, from above 0 to :data:`.policy.MOST_PRUNED`.
    :raises ConfigurationError: for an encoder of another kind, a share out of range, an encoder in which no
        channel can go any more, or when torch-pruning is not installed.
    """
    encoder = graph.encoders[name]
    if not isinstance(encoder, Ct3d | Wsi2d):
        raise ConfigurationError(
            f"Modality {name!r} is of kind {graph.schema[name].kind}; only encoders of "
            f"{' and '.join(PRUNABLE)} can be pruned. Leave its prune out."
        )
    if not 0 < share <= MOST_PRUNED:
        raise ConfigurationError(
            f"prune of {name!r} is {share:g}; give a share above 0 and up to {MOST_PRUNED:g}."
        )
    # The layers are followed by their gradients, each computed once.
    encoder.requires_grad_(True)
    set_recompute(encoder, False)
    width = _last(encoder.blocks)
    kept = _removed(encoder.blocks, share)
    if all(len(channels) == stop for channels, stop in kept.values()):
        raise ConfigurationError(
            f"prune of {name!r} is {share:g}, and no channel of its encoder can go any more: each group of "
            "each norm has one left. Leave it out."
        )
    fresh = {layer: channels for layer, (channels, _) in kept.items()}
    _narrow_outputs(graph, name, fresh[f"{len(encoder.blocks) - 1}.second"], width)
    earlier = encoder.kept
    encoder.kept = {
        layer: [earlier[layer][channel] for channel in channels] if earlier else channels
        for layer, channels in fresh.items()
    }


def channel_maps(graph: FusionGraph) -> dict[str, dict[str, list[int]]]:
    """Return the maps of encoders that are pruned, by modality, as JSON values."""
    return {
        name: {layer: list(channels) for layer, channels in encoder.kept.items()}
        for name, encoder in graph.encoders.items()
        if isinstance(encoder, Ct3d | Wsi2d) and encoder.kept
    }


def narrow(graph: FusionGraph, maps: Mapping[str, ChannelMap]) -> None:
    """
    Give a whole graph the smaller encoders that maps speak of, with new weights; needs no torch-pruning.

    :param maps: by modality, as :func:`channel_maps` gives them.
    :raises KeyError: for a map that is none of the graph's encoders.
    """
    for name, kept in maps.items():
        whole = graph.encoders[name]
        if not isinstance(whole, Ct3d | Wsi2d):
            raise KeyError(name)
        channels = tuple(len(kept[f"{number}.second"]) for number in range(len(whole.blocks)))
        smaller = type(whole)(channels)
        smaller.kept = {layer: tuple(left) for layer, left in kept.items()}
        graph.encoders[name] = smaller
        graph.projections[name] = Projection(smaller.width, WIDTH)


def _removed(blocks: nn.Sequential, share: float) -> dict[str, tuple[list[int], int]]:
    """Take channels out of blocks; returns, by convolution, which are left and how many there were."""
    try:
        import torch_pruning
    except ModuleNotFoundError as error:
        raise missing_library("torch-pruning", "fusion-prune") from error
    layers = {
        name: layer for name, layer in blocks.named_modules() if isinstance(layer, nn.Conv2d | nn.Conv3d)
    }
    before = {name: layer.out_channels for name, layer in layers.items()}
    names = {layer: name for name, layer in layers.items()}
    pruner = torch_pruning.pruner.BasePruner(
        blocks,
        _example(blocks),
        importance=torch_pruning.importance.GroupMagnitudeImportance(p=2),
        pruning_ratio=share,
    )
    gone: dict[str, set[int]] = {name: set() for name in layers}
    for group in pruner.step(interactive=True):
        for dependency, channels in group:
            layer = dependency.target.module
            if layer in names and pruner.DG.is_out_channel_pruning_fn(dependency.handler):
                gone[names[layer]].update(channels)
        group.prune()
    return {
        name: ([each for each in range(stop) if each not in gone[name]], stop)
        for name, stop in before.items()
    }


def _example(blocks: nn.Sequential) -> Tensor:
    first = next(layer for layer in blocks.modules() if isinstance(layer, nn.Conv2d | nn.Conv3d))
    sides = (_SIDE,) * len(first.kernel_size)
    return torch.zeros(1, first.in_channels, *sides, device=first.weight.device)


def _last(blocks: nn.Sequential) -> int:
    """Return how many channels blocks give."""
    last = [layer for layer in blocks.modules() if isinstance(layer, nn.Conv2d | nn.Conv3d)][-1]
    return last.out_channels


def _narrow_outputs(graph: FusionGraph, name: str, kept: Sequence[int], before: int) -> None:
    """
    Take what the last block does not give any more out of all that reads it.

    :param kept: channels of the last block that are left.
    :param before: how many there were.
    """
    encoder, projection = graph.encoders[name], graph.projections[name]
    assert isinstance(encoder, Ct3d | Wsi2d)
    assert isinstance(projection, Projection)
    left = list(kept)
    if isinstance(encoder, Wsi2d):
        encoder.gate = _columns(encoder.gate, left)
    else:  # means, then largest values
        left += [before + channel for channel in kept]
    encoder.width = len(left)
    projection.mean, projection.spread = projection.mean[left].clone(), projection.spread[left].clone()
    projection.linear = _columns(projection.linear, left)


def _columns(layer: nn.Linear, left: Sequence[int]) -> nn.Linear:
    """Return a layer that reads only some of its inputs."""
    found = nn.Linear(len(left), layer.out_features, device=layer.weight.device)
    with torch.no_grad():
        found.weight.copy_(layer.weight[:, list(left)])
        found.bias.copy_(layer.bias)
    return found
