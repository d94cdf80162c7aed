"""A BERT from a folder, token by token, on the CPU; numpy does the arithmetic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from airflow_provider_llmbatch.errors import ConfigurationError

Array = NDArray[np.float32]

#: Tokens of all windows that are encoded at once.
_AT_ONCE = 2_048
#: How much longer than the shortest window of a batch the longest may be.
_SPREAD = 1.25
_MASKED = np.float32(-1e9)


class Encoder:
    """
    Texts to vectors, one for each token.

    Texts that are longer than the model reads are cut into windows, each of which is read by itself.

    :param folder: ``config.json``, ``model.safetensors`` and ``tokenizer.json`` of a BERT with gelu.
    :raises ConfigurationError: when it is no such model, or a library is missing.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from safetensors import SafetensorError
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ConfigurationError(
                f"BERTScore needs safetensors and tokenizers ({error}): install "
                "airflow-provider-llmbatch[grade]."
            ) from error
        try:
            config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            if config["model_type"] != "bert" or config.get("hidden_act") != "gelu":
                raise ValueError(f"it is a {config['model_type']}")
            held = load_file(str(folder / "model.safetensors"))
            self._weights: Mapping[str, Array] = {
                name.removeprefix("bert."): value.astype(np.float32) for name, value in held.items()
            }
            self._heads = int(config["num_attention_heads"])
            self._layers = int(config["num_hidden_layers"])
            self._epsilon = float(config["layer_norm_eps"])
            self._longest = int(config["max_position_embeddings"]) - 2
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            self._ends: list[Any] = [self._tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]")]
            self._weights["embeddings.word_embeddings.weight"]
        # the tokenizer's library raises plain exceptions
        except (SafetensorError, Exception) as error:
            raise ConfigurationError(
                f"The encoder {folder} cannot be read ({type(error).__name__}: {error}); give a folder with "
                "config.json, model.safetensors and tokenizer.json of a BERT."
            ) from error

    def vectors(self, texts: Sequence[str]) -> list[Array]:
        """
        Encode texts.

        :return: for each text (tokens, width), rows of length 1, without those of its ends.
        """
        cut = [list(self._windows(text)) for text in texts]
        flat = [window for windows in cut for window in windows]
        found: dict[int, Array] = {}
        for numbers in _batches([len(window) for window in flat]):
            hidden = self._encode([flat[number] for number in numbers])
            for place, number in enumerate(numbers):
                inner = hidden[place, 1 : len(flat[number]) - 1]
                found[number] = inner / np.linalg.norm(inner, axis=-1, keepdims=True)
        whole, number = [], 0
        for windows in cut:
            parts = [found[number + place] for place in range(len(windows))]
            number += len(windows)
            whole.append(np.concatenate(parts) if parts else np.zeros((0, 1), np.float32))
        return whole

    def _windows(self, text: str) -> Iterator[list[int]]:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        for start in range(0, len(ids), self._longest):
            yield [self._ends[0], *ids[start : start + self._longest], self._ends[1]]

    def _encode(self, windows: Sequence[Sequence[int]]) -> Array:
        """Return the last layer, (windows, tokens, width)."""
        lengths = np.array([len(window) for window in windows])
        ids = np.zeros((len(windows), lengths.max()), dtype=np.int64)
        for row, window in zip(ids, windows, strict=True):
            row[: len(window)] = window
        mask = np.where(np.arange(ids.shape[1]) < lengths[:, None], np.float32(0), _MASKED)
        weights = self._weights
        tokens = (
            weights["embeddings.word_embeddings.weight"][ids]
            + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        tokens = self._norm(tokens, "embeddings.LayerNorm")
        for layer in range(self._layers):
            tokens = self._layer(tokens, mask, f"encoder.layer.{layer}")
        return tokens

    def _layer(self, tokens: Array, mask: Array, name: str) -> Array:
        many, length, width = tokens.shape
        parts = [
            self._linear(tokens, f"{name}.attention.self.{part}")
            .reshape(many, length, self._heads, -1)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        ]
        query, key, value = parts
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(width // self._heads))
        scores += mask[:, None, None, :]
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        read: Array = np.asarray(scores @ value, dtype=np.float32).transpose(0, 2, 1, 3)
        read = read.reshape(many, length, width)
        read = self._linear(read, f"{name}.attention.output.dense")
        tokens = self._norm(tokens + read, f"{name}.attention.output.LayerNorm")
        inner = self._linear(tokens, f"{name}.intermediate.dense")
        inner = np.asarray(inner * np.float32(0.5) * (1 + erf(inner * np.float32(np.sqrt(0.5)))))
        return self._norm(tokens + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _linear(self, tokens: Array, name: str) -> Array:
        weight = self._weights[f"{name}.weight"]
        # One large product is several times as fast as one for each window.
        made = tokens.reshape(-1, tokens.shape[-1]) @ weight.T + self._weights[f"{name}.bias"]
        return np.asarray(made.reshape(*tokens.shape[:-1], -1), dtype=np.float32)

    def _norm(self, tokens: Array, name: str) -> Array:
        centred = tokens - tokens.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(self._epsilon))
        return np.asarray(centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"])


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield places of windows that are encoded together: alike in length, so that little is padded."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        longer = bool(batch) and lengths[number] > _SPREAD * lengths[batch[0]]
        if batch and (longer or (len(batch) + 1) * lengths[number] > _AT_ONCE):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
