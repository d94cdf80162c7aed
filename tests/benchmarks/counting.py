"""Tokens of texts: how many texts of 600 bytes are counted in a second, on one core."""

from __future__ import annotations

import time
from typing import Any

from airflow_provider_llmbatch.engine.tokens.count import TokenCounter
from tests.benchmarks import work

TEXT_BYTES = 600


def measure(*, quick: bool = False) -> dict[str, Any]:
    """Return texts per second, and the same for tiktoken alone."""
    count = 5_000 if quick else 30_000
    texts = [_text(index) for index in range(count)]
    counter = TokenCounter.for_model(work.MODEL)
    counter.count(texts[0])  # reads the vocabulary
    began = time.perf_counter()
    total = sum(map(counter.count, texts))
    seconds = time.perf_counter() - began
    return {
        "count_per_s": round(count / seconds),
        "count_tokens_per_text": round(total / count),
        "count_per_s_tiktoken": round(count / _by_tiktoken(counter.encoding, texts)),
    }


def _text(index: int) -> str:
    return work.text(index, 120)[:TEXT_BYTES]


def _by_tiktoken(encoding: str, texts: list[str]) -> float:
    from airflow_provider_llmbatch.engine.tokens.encodings import load_encoding

    encode = load_encoding(encoding).encode_ordinary
    began = time.perf_counter()
    for text in texts:
        len(encode(text))
    return time.perf_counter() - began
