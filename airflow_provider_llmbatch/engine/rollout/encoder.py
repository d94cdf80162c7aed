"""A BERT from a folder, token by token, on the CPU."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from airflow_provider_llmbatch.engine.rollout.layers import Array, Layers
from airflow_provider_llmbatch.errors import ConfigurationError

#: Tokens of all windows that a core encodes at once.
_AT_ONCE = 512
#: How much longer than the shortest window of a batch the longest may be.
_SPREAD = 1.25
#: The vectors of an empty text.
_NOTHING: Array = np.zeros((0, 1), np.float32)


class Encoder:
    """
    Texts to vectors, one for each token.

    Texts that are longer than the model reads are cut into windows, each of which is read by itself.

    :param folder: ``config.json``, ``model.safetensors`` and ``tokenizer.json`` of a BERT with gelu.
    :param threads: how many batches are encoded at once; as many as there are cores when None.
    :raises ConfigurationError: when it is no such model, or a library is missing.
    """

    def __init__(self, folder: Path, *, threads: int | None = None) -> None:
        try:
            from safetensors import SafetensorError
            from safetensors.numpy import load_file
            from threadpoolctl import ThreadpoolController
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ConfigurationError(
                f"BERTScore needs safetensors, threadpoolctl and tokenizers ({error}): install "
                "airflow-provider-llmbatch[grade]."
            ) from error
        self._threads = threads or len(os.sched_getaffinity(0))
        self._libraries = ThreadpoolController()
        try:
            config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            if config["model_type"] != "bert" or config.get("hidden_act") != "gelu":
                raise ValueError(f"it is a {config['model_type']}")
            held = load_file(str(folder / "model.safetensors"))
            self._layers = Layers(
                {name.removeprefix("bert."): value.astype(np.float32) for name, value in held.items()},
                heads=int(config["num_attention_heads"]),
                layers=int(config["num_hidden_layers"]),
                epsilon=float(config["layer_norm_eps"]),
            )
            self._longest = int(config["max_position_embeddings"]) - 2
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            self._ends: list[Any] = [self._tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]")]
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
        found: list[Array] = [_NOTHING] * len(flat)

        def encode(numbers: Sequence[int]) -> None:
            for number, vectors in zip(numbers, self._encode([flat[each] for each in numbers]), strict=True):
                found[number] = vectors

        with self.one_core_each(), ThreadPoolExecutor(self._threads) as threads:
            for _ in threads.map(encode, list(_batches([len(window) for window in flat]))):
                pass
        parts = iter(found)
        return [np.concatenate([next(parts) for _ in windows]) if windows else _NOTHING for windows in cut]

    def one_core_each(self) -> AbstractContextManager[object]:
        """Have each product of matrices use one core: small ones on all cores mostly wait for each other."""
        limited: AbstractContextManager[object] = self._libraries.limit(limits=1, user_api="blas")
        return limited

    def _windows(self, text: str) -> Iterator[list[int]]:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        for start in range(0, len(ids), self._longest):
            yield [self._ends[0], *ids[start : start + self._longest], self._ends[1]]

    def _encode(self, windows: Sequence[Sequence[int]]) -> Iterator[Array]:
        """Yield the vectors of windows, each (tokens, width)."""
        lengths = np.array([len(window) for window in windows])
        ids = np.zeros((len(windows), lengths.max()), dtype=np.int64)
        for row, window in zip(ids, windows, strict=True):
            row[: len(window)] = window
        for window, length in zip(self._layers(ids, lengths), lengths, strict=True):
            inner = window[1 : length - 1]
            yield inner / np.linalg.norm(inner, axis=-1, keepdims=True)


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
