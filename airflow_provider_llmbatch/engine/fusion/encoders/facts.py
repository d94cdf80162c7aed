"""Facts: the weighted mean of what each fact's bucket stands for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FactsEncoder(nn.Module):
    """
    Facts to vectors.

    :param buckets: how many there are.
    :param width: of a vector.
    """

    def __init__(self, buckets: int, width: int = 64) -> None:
        super().__init__()
        self.width = width
        self.table = nn.Embedding(buckets, width)

    def forward(self, facts: Tensor, lengths: Sequence[int]) -> Tensor:
        """
        Encode facts.

        :param facts: (facts of all records, 2): bucket and weight.
        :param lengths: facts of each record.
        :return: (records, width).
        """
        weighted = self.table(facts[:, 0].long()) * facts[:, 1:]
        return torch.stack([part.sum(dim=0) / len(part) ** 0.5 for part in weighted.split(list(lengths))])
