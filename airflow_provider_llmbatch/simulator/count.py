"""How the simulator counts the tokens of a text."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_llmbatch.simulator.settings import CountTokens

#: Bytes of a token in the cheap estimate.
BYTES_PER_TOKEN = 4


def counter(kind: CountTokens) -> Callable[[str], int]:
    """Return the counter of that kind, ready to count."""
    if kind == "estimate":
        return estimate
    from airflow_provider_llmbatch.engine.tokens.count import TokenCounter

    count = TokenCounter("o200k_base").count
    # The first count reads the vocabulary, which would make the first call late.
    count("")
    return count


def estimate(text: str) -> int:
    """Return a quarter of the bytes, rounded up."""
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)
