"""
How sure a model may be, by how many modalities a record has (temperature scaling; Guo, Pleiss, Sun, 2017).

A model that was fitted on few records is surer than it should be, most of all where it sees little. Scales
that bring it down are found on records that it was not fitted on.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

#: Scales that are tried.
_TRIED = torch.logspace(-1.0, 1.0, 81)


def losses_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """
    Return the loss of each record.

    :param outputs: (records, 1) for two classes, (records, classes) for more.
    :param targets: (records,) of int64.
    """
    if outputs.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(outputs[:, 0], targets.float(), reduction="none")
    return F.cross_entropy(outputs, targets, reduction="none")


def scales_of(looks: Iterable[tuple[Tensor, Tensor, Tensor]], modalities: int) -> Tensor:
    """
    Return the scale of outputs for each number of modalities, (1 + modalities).

    A scale makes the sum of losses smallest, with half the square of its logarithm added: so few records,
    or some that are all told apart, do not move it without bound.

    :param looks: the same records several times, with others of their modalities hidden: outputs, targets,
        and how many modalities are there, (records,).
    """
    every = list(looks)
    outputs, targets, counts = (torch.cat([look[place] for look in every]) for place in range(3))
    found = torch.ones(modalities + 1)
    for count in range(1, modalities + 1):
        chosen = counts == count
        if not chosen.any():
            continue
        # Each record counts once, however often it was looked at.
        weight = 1 / max(1.0, float(chosen.sum()) / float(len(every[0][0])))
        tried = [losses_of(outputs[chosen] * scale, targets[chosen]).sum() * weight for scale in _TRIED]
        found[count] = _TRIED[(torch.stack(tried) + 0.5 * _TRIED.log() ** 2).argmin()]
    return found
