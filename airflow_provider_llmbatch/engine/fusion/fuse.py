"""Fusion: what each modality says by itself, and what a few latent vectors read from all of them together."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LatentFusion(nn.Module):
    """
    Cross-attention of latents to the tokens of the modalities that are there.

    A learned token is always there, so that no record leaves the mask empty. The outputs are sums: what each
    modality that is there says by itself, and what the latents found. By how many modalities are there, they
    are scaled, so that scores of records that have more and of those that have less can be compared.

    :param modalities: how many the schema has.
    :param width: of a token.
    :param latents: how many vectors read.
    :param heads: of the attention.
    :param outputs: of the prediction.
    """

    scales: Tensor

    def __init__(
        self, *, modalities: int, width: int, latents: int = 4, heads: int = 4, outputs: int = 1
    ) -> None:
        super().__init__()
        self._heads = heads
        self.null = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.kinds = nn.Parameter(torch.randn(modalities, width) * 0.02)
        self.latents = nn.Parameter(torch.randn(latents, width) * 0.5)
        self.before = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.mixed = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.after = nn.LayerNorm(width)
        self.head = nn.Linear(width, outputs)
        self.evidence = nn.Parameter(torch.zeros(modalities, outputs, width))
        #: by how many modalities are there; what :mod:`.calibrate` finds after a training
        self.register_buffer("scales", torch.ones(modalities + 1))
        self.evidence_bias = nn.Parameter(torch.zeros(modalities, outputs))

    def forward(self, tokens: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """
        Fuse the tokens of records.

        :param tokens: (records, modalities, width); what is absent is not read.
        :param present: (records, modalities) of bool.
        :return: embedding (records, width), outputs (records, outputs), and how much of the attention each
            modality got (records, 1 + modalities), the learned token first.
        """
        records = len(tokens)
        absent = ~torch.cat([present.new_ones(records, 1), present], dim=1)
        # What is absent may hold anything, even what is no number.
        tokens = torch.where(present[..., None], tokens, torch.zeros_like(tokens))
        alone = torch.einsum("rmw,mow->rmo", tokens, self.evidence) + self.evidence_bias
        evidence = (alone * present[..., None]).sum(dim=1)
        tokens = tokens + self.kinds * present[..., None]
        read = self.before(torch.cat([self.null.expand(records, 1, -1), tokens], dim=1))
        query = self._split(self.query(self.latents).expand(records, -1, -1))  # (records, heads, latents, d)
        key, value = self._split(self.key(read)), self._split(self.value(read))
        scores = query @ key.transpose(-1, -2) / key.shape[-1] ** 0.5
        weights = scores.masked_fill(absent[:, None, None, :], float("-inf")).softmax(dim=-1)
        mixed = (weights @ value).transpose(1, 2).flatten(2)  # (records, latents, width)
        found = self.latents + self.out(mixed)
        found = found + self.feed(self.mixed(found))
        embedding = self.after(found.mean(dim=1))
        outputs = (self.head(embedding) + evidence) * self.scales[present.sum(dim=1)][:, None]
        return embedding, outputs, weights.mean(dim=(1, 2))

    def _split(self, values: Tensor) -> Tensor:
        split: Tensor = values.unflatten(-1, (self._heads, -1)).transpose(1, 2)
        return split
