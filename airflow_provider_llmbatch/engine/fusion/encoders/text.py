"""Notes: a BERT read from a folder, over every window of a text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from airflow_provider_llmbatch.engine.fusion.encoders.recompute import Layers
from airflow_provider_llmbatch.errors import ConfigurationError


class Layer(nn.Module):
    """
    One layer of a BERT.

    :param width: of a token.
    :param inner: of the feed-forward part.
    :param heads: of the attention.
    :param epsilon: of the norms.
    """

    def __init__(self, width: int, inner: int, heads: int, epsilon: float) -> None:
        super().__init__()
        self._heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.mixed = nn.LayerNorm(width, epsilon)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.after = nn.LayerNorm(width, epsilon)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return (windows, tokens, width) of the same; ``mask`` (windows, 1, 1, tokens): where text is."""
        query, key, value = (
            part(tokens).unflatten(-1, (self._heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        read = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        tokens = self.mixed(tokens + self.out(read.transpose(1, 2).flatten(2)))
        found: Tensor = self.after(tokens + self.down(F.gelu(self.up(tokens))))
        return found


class BertEncoder(nn.Module):
    """
    Notes to vectors: the mean of a window's tokens at length 1, and of windows by their length.

    :param config: what ``config.json`` of the model says.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.width = int(config["hidden_size"])
        epsilon = float(config["layer_norm_eps"])
        self.words = nn.Embedding(int(config["vocab_size"]), self.width)
        self.places = nn.Embedding(int(config["max_position_embeddings"]), self.width)
        self.kinds = nn.Embedding(int(config["type_vocab_size"]), self.width)
        self.before = nn.LayerNorm(self.width, epsilon)
        self.layers = Layers(
            Layer(self.width, int(config["intermediate_size"]), int(config["num_attention_heads"]), epsilon)
            for _ in range(int(config["num_hidden_layers"]))
        )

    @classmethod
    def from_dir(cls, folder: Path) -> BertEncoder:
        """
        Read a model.

        :param folder: ``config.json`` and ``model.safetensors``.
        :raises ConfigurationError: when it is no such model.
        """
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            if config["model_type"] != "bert" or config.get("hidden_act") != "gelu":
                raise ConfigurationError(f"text_model is a {config['model_type']}; give a BERT with gelu.")
            encoder = cls(config)
            held = load_file(str(folder / "model.safetensors"))
            encoder.load_state_dict({ours: held[theirs] for ours, theirs in _names(len(encoder.layers))})
        except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
            raise ConfigurationError(
                f"text_model cannot be read ({type(error).__name__}); give a folder with config.json, "
                "model.safetensors and tokenizer.json of a BERT."
            ) from error
        return encoder

    def forward(self, windows: Tensor, lengths: Sequence[int], longest: int) -> Tensor:
        """
        Encode notes.

        :param windows: (windows of all notes, 256) of int32; padding is 0.
        :param lengths: windows of each note.
        :param longest: tokens of the longest window; what is behind is not computed.
        :return: (notes, width), of length 1.
        """
        ids = windows[:, :longest].long()
        mask = ids != 0
        places = torch.arange(longest, device=ids.device)
        tokens = self.before(self.words(ids) + self.places(places) + self.kinds.weight[0])
        tokens = self.layers.through(tokens, mask[:, None, None, :])
        counts = mask.sum(dim=1, keepdim=True).to(tokens.dtype)
        means = F.normalize((tokens * mask[..., None]).sum(dim=1) / counts, dim=-1)
        weighted = [
            (part * size).sum(dim=0) / size.sum()
            for part, size in zip(means.split(list(lengths)), counts.split(list(lengths)), strict=True)
        ]
        return F.normalize(torch.stack(weighted), dim=-1)


def _names(layers: int) -> list[tuple[str, str]]:
    """Pair the names of our parameters with those in the file."""
    whole = {
        "words.weight": "embeddings.word_embeddings.weight",
        "places.weight": "embeddings.position_embeddings.weight",
        "kinds.weight": "embeddings.token_type_embeddings.weight",
    }
    parts = {
        **{"query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value"},
        **{"out": "attention.output.dense", "mixed": "attention.output.LayerNorm"},
        **{"up": "intermediate.dense", "down": "output.dense", "after": "output.LayerNorm"},
    }
    names = [("before", "embeddings.LayerNorm")]
    names += [
        (f"layers.{n}.{ours}", f"encoder.layer.{n}.{theirs}")
        for n in range(layers)
        for ours, theirs in parts.items()
    ]
    both = [(f"{a}.{end}", f"{b}.{end}") for a, b in names for end in ("weight", "bias")]
    return [*whole.items(), *both]
