"""Look at a Redis server as the state will use it: what it is, and whether its scripts may run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_llmbatch.engine.state.redis.keys import VERSION
from airflow_provider_llmbatch.engine.state.redis.state import RedisState
from airflow_provider_llmbatch.errors import StateUnreachableError, StoreError

#: Oldest version whose scripts may read the clock before they write.
OLDEST = (5, 0)
#: Milliseconds that the key of the trial is there.
_TRIAL_MS = "10000"
#: Sections of INFO that say something about it.
_SECTIONS = ("server", "memory", "persistence", "replication")


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What a server says of itself; fields that it does not tell are missing in ``info``."""

    #: milliseconds of a call
    call_ms: float
    info: Mapping[str, str] = field(default_factory=dict)
    #: why a script that writes could not be run; ``""`` when it could
    refusal: str = ""

    @property
    def version(self) -> tuple[int, ...] | None:
        """The server's version, None when it does not tell."""
        parts = self.info.get("redis_version", "").split(".")
        return tuple(int(part) for part in parts if part.isdecimal()) or None


async def examine(state: RedisState, *, now: Callable[[], float] = time.monotonic) -> Examined:
    """
    Ask a server, and run one script that writes a key which ends by itself.

    :param now: seconds that only go forward.
    :raises StateUnreachableError: when it does not answer.
    :raises StoreError: when it answers with an error, such as a wrong password.
    """
    begun = now()
    await state.command("PING")
    call_ms = 1000 * (now() - begun)
    info: dict[str, str] = {}
    for section in _SECTIONS:
        info |= await _info(state, section)
    return Examined(call_ms=call_ms, info=info, refusal=await _trial(state))


async def _info(state: RedisState, section: str) -> dict[str, str]:
    try:
        answer: Any = await state.command("INFO", section)
    except StateUnreachableError:
        raise
    except StoreError:
        return {}
    # A Cluster answers for each of its nodes.
    while isinstance(answer, dict) and answer and all(isinstance(value, dict) for value in answer.values()):
        answer = next(iter(answer.values()))
    return {str(key): str(value) for key, value in answer.items()} if isinstance(answer, dict) else {}


async def _trial(state: RedisState) -> str:
    """Claim a question that nobody asks: reads the clock and a hash, and writes them, as all scripts do."""
    key = f"{VERSION}:claims:{{trial}}"
    try:
        await state.script("claim", [key], ["trial", "trial", "1", _TRIAL_MS, _TRIAL_MS])
        await state.command("HDEL", key, "trial")
    except StateUnreachableError:
        raise
    except StoreError as error:
        return str(error)
    return ""
