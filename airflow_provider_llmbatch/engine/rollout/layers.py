"""
The layers of a BERT over a batch of tokens, by numpy, in one thread.

Most of the time goes into products of matrices. What is between them is done in place and piece by piece:
arrays of some megabytes that are made anew for each step cost more than the steps themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

#: Rows that the activation is taken of at once, so that they stay in the cache of a core.
_ROWS = 64
_MASKED = np.float32(-1e9)
_HALF_ROOT = np.float32(np.sqrt(0.5))
#: Coefficients of the complement of the error function, from the highest power down. Source: M. Abramowitz
#: and I. Stegun, Handbook of Mathematical Functions, 7.1.26; wrong by 1.5e-7 at most, as much as float32 can
#: tell apart.
_ERF = tuple(np.float32(one) for one in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
_ERF_P = np.float32(0.3275911)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Weights of a layer, (out, in), and biases, (out)."""

    #: query, key and value, one after the other
    attention: Array
    attention_bias: Array
    read: Array
    read_bias: Array
    read_norm: tuple[Array, Array]
    up: Array
    up_bias: Array
    down: Array
    down_bias: Array
    down_norm: tuple[Array, Array]
    heads: int
    epsilon: np.float32


class Layers:
    """
    All layers of a BERT.

    :param weights: by the names that the model's file has, without a leading ``bert.``.
    :param heads: of the attention.
    :param layers: how many.
    :param epsilon: of the norms.
    """

    def __init__(self, weights: Mapping[str, Array], *, heads: int, layers: int, epsilon: float) -> None:
        self._words = weights["embeddings.word_embeddings.weight"]
        # All texts are of the first kind.
        kind = weights["embeddings.token_type_embeddings.weight"][0]
        self._places = weights["embeddings.position_embeddings.weight"] + kind
        self._first_norm = _norm_of(weights, "embeddings")
        self._epsilon = np.float32(epsilon)
        self._layers = [
            _layer(weights, f"encoder.layer.{number}", heads, self._epsilon) for number in range(layers)
        ]

    def __call__(self, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> Array:
        """
        Return what the last layer says.

        :param ids: (windows, tokens), what lies behind a window's length is not looked at.
        :param lengths: (windows).
        :return: (windows, tokens, width)
        """
        many, length = ids.shape
        mask = np.where(np.arange(length) < lengths[:, None], np.float32(0), _MASKED)[:, None, None, :]
        tokens = (self._words[ids] + self._places[:length]).reshape(many * length, -1)
        _normalise(tokens, self._first_norm, self._epsilon)
        for layer in self._layers:
            tokens = _through(layer, tokens, mask)
        whole: Array = tokens.reshape(many, length, -1)
        return whole


def _layer(weights: Mapping[str, Array], name: str, heads: int, epsilon: np.float32) -> Layer:
    parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
    return Layer(
        attention=np.concatenate([weights[f"{part}.weight"] for part in parts]),
        attention_bias=np.concatenate([weights[f"{part}.bias"] for part in parts]),
        read=weights[f"{name}.attention.output.dense.weight"],
        read_bias=weights[f"{name}.attention.output.dense.bias"],
        read_norm=_norm_of(weights, f"{name}.attention.output"),
        up=weights[f"{name}.intermediate.dense.weight"],
        up_bias=weights[f"{name}.intermediate.dense.bias"],
        down=weights[f"{name}.output.dense.weight"],
        down_bias=weights[f"{name}.output.dense.bias"],
        down_norm=_norm_of(weights, f"{name}.output"),
        heads=heads,
        epsilon=epsilon,
    )


def _norm_of(weights: Mapping[str, Array], name: str) -> tuple[Array, Array]:
    return weights[f"{name}.LayerNorm.weight"], weights[f"{name}.LayerNorm.bias"]


def _through(layer: Layer, tokens: Array, mask: Array) -> Array:
    """Return what a layer makes of (all tokens, width)."""
    read = _linear(_attended(layer, tokens, mask), layer.read, layer.read_bias)
    read += tokens
    _normalise(read, layer.read_norm, layer.epsilon)
    inner = _linear(read, layer.up, layer.up_bias)
    _gelu(inner)
    made = _linear(inner, layer.down, layer.down_bias)
    made += read
    _normalise(made, layer.down_norm, layer.epsilon)
    return made


def _attended(layer: Layer, tokens: Array, mask: Array) -> Array:
    many, length = mask.shape[0], mask.shape[-1]
    parts = _linear(tokens, layer.attention, layer.attention_bias)
    query, key, value = parts.reshape(many, length, 3, layer.heads, -1).transpose(2, 0, 3, 1, 4)
    scores: Array = query @ key.transpose(0, 1, 3, 2)
    scores *= np.float32(1 / np.sqrt(query.shape[-1]))
    scores += mask
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return np.asarray((scores @ value).transpose(0, 2, 1, 3).reshape(tokens.shape), dtype=np.float32)


def _linear(tokens: Array, weight: Array, bias: Array) -> Array:
    made: Array = tokens @ weight.T
    made += bias
    return made


def _normalise(tokens: Array, norm: tuple[Array, Array], epsilon: np.float32) -> None:
    """Bring each token to mean 0 and deviation 1, in place, and stretch and shift it then."""
    tokens -= tokens.mean(axis=-1, keepdims=True)
    spread = np.einsum("ij,ij->i", tokens, tokens)[:, None] / np.float32(tokens.shape[-1])
    tokens /= np.sqrt(spread + epsilon)
    tokens *= norm[0]
    tokens += norm[1]


def _gelu(values: Array) -> None:
    """Take the gelu, x (1 + erf(x / √2)) / 2, in place: max(x, 0) - |x| erfc(|x| / √2) / 2."""
    size, inverse, series = (np.empty((_ROWS, values.shape[-1]), np.float32) for _ in range(3))
    for start in range(0, len(values), _ROWS):
        rows = values[start : start + _ROWS]
        u, t, q = (room[: len(rows)] for room in (size, inverse, series))
        np.abs(rows, out=u)
        u *= _HALF_ROOT
        np.multiply(u, _ERF_P, out=t)
        t += np.float32(1)
        np.divide(np.float32(1), t, out=t)
        np.multiply(t, _ERF[0], out=q)
        for one in _ERF[1:]:
            q += one
            q *= t
        q *= u
        u *= u
        np.negative(u, out=u)
        np.exp(u, out=u)
        q *= u
        q *= _HALF_ROOT
        np.maximum(rows, np.float32(0), out=rows)
        rows -= q
