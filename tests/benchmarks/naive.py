"""
What a batch looks like without this package: everything gathered at once, a semaphore, the retries of an SDK.

The retries are those of the usual client libraries: two more tries on 408, 409, 429, 5xx and broken
connections, after what ``retry-after`` says up to a minute, else after 0.5 s doubled each time up to 8 s and
shortened by up to a quarter at random.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

IN_FLIGHT = 20
RETRIES = 2
FIRST_S, LONGEST_S, BELIEVED_S = 0.5, 8.0, 60.0
AGAIN = frozenset({408, 409, 429, *range(500, 600)})


@dataclass
class Fates:
    """How the items ended."""

    #: seconds from the first try to the answer, and its prompt and completion tokens, by item
    answered: dict[int, tuple[float, int, int]] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)
    seconds: float = 0.0


async def gather_all(url: str, bodies: Sequence[bytes]) -> Fates:
    """Send all bodies the plain way."""
    fates, slots = Fates(), asyncio.Semaphore(IN_FLIGHT)
    headers = {"content-type": "application/json", "authorization": "Bearer sk-benchmark-0123456789"}
    limits = httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
    began = time.monotonic()
    async with httpx.AsyncClient(headers=headers, limits=limits, timeout=60.0) as client:

        async def one(index: int, body: bytes) -> None:
            async with slots:
                first = time.monotonic()
                response = await _answered(client, f"{url}/chat/completions", body)
                if response is None or response.status_code != 200:
                    fates.failed.append(index)
                    return
                usage = json.loads(response.content)["usage"]
                took = time.monotonic() - first
                fates.answered[index] = (took, usage["prompt_tokens"], usage["completion_tokens"])

        await asyncio.gather(*(one(index, body) for index, body in enumerate(bodies)))
    fates.seconds = time.monotonic() - began
    return fates


async def _answered(client: httpx.AsyncClient, url: str, body: bytes) -> httpx.Response | None:
    response = None
    for retry in range(RETRIES + 1):
        try:
            response = await client.post(url, content=body)
        except httpx.TransportError:
            response = None
        if (response is not None and response.status_code not in AGAIN) or retry == RETRIES:
            break
        await asyncio.sleep(_wait(response, retry))
    return response


def _wait(response: httpx.Response | None, retry: int) -> float:
    told = response.headers.get("retry-after", "") if response is not None else ""
    try:
        seconds = float(told)
    except ValueError:
        seconds = 0.0
    if 0 < seconds <= BELIEVED_S:
        return seconds
    return min(FIRST_S * 2**retry, LONGEST_S) * (1 - 0.25 * random.random())
