"""The vocabularies in the package as tiktoken encodings: nothing is ever downloaded."""

from __future__ import annotations

import base64
import gzip
import threading
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiktoken import Encoding

#: Encoding of models that nobody knows.
DEFAULT_ENCODING = "o200k_base"

#: How tiktoken cuts a text into words before it looks for tokens in them, by encoding.
PATTERNS: Mapping[str, str] = {
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "o200k_base": "|".join(
        (
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        )
    ),
}

#: Encodings that split ordinary text as another one does; they differ in special tokens only.
_SAME_FOR_TEXT: Mapping[str, str] = {"o200k_harmony": "o200k_base"}

_loaded: dict[str, Encoding] = {}
_loading = threading.Lock()


def encoding_name(model: str) -> str | None:
    """
    Return the encoding of a model by its name, or None when that is not known.

    A vendor in front (``openai/gpt-4o``) does not matter.
    """
    from tiktoken.model import encoding_name_for_model

    try:
        name = encoding_name_for_model(model.rpartition("/")[2])
    except KeyError:
        return None
    name = _SAME_FOR_TEXT.get(name, name)
    return name if name in PATTERNS else None


def load_encoding(name: str) -> Encoding:
    """Return an encoding, loaded once per process; its special tokens are plain text."""
    with _loading:
        if name not in _loaded:
            _loaded[name] = _read(name)
        return _loaded[name]


def vocabulary(name: str) -> bytes:
    """Return the content of a vocabulary file: a token in base 64 and its rank on each line."""
    return gzip.decompress((resources.files(__package__) / f"vocabulary/{name}.tiktoken.gz").read_bytes())


def _read(name: str) -> Encoding:
    from tiktoken import Encoding

    lines = (line.split() for line in vocabulary(name).splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    return Encoding(name, pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens={})
