"""Notes that runs shall stop, in Redis: one hash for each run."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_llmbatch.engine.state.redis.keys import VERSION
from airflow_provider_llmbatch.engine.state.redis.state import RedisState
from airflow_provider_llmbatch.engine.state.stops import KEPT_S, Stop


class RedisStops:
    """
    Notes on the server of a :class:`.state.RedisState`.

    :param state: reaches the server.
    """

    def __init__(self, state: RedisState) -> None:
        self._state = state

    async def ask(self, run: str, *, by: str, why: str) -> None:
        """See :meth:`..stops.Stops.ask`."""
        await self._state.script("stop_ask", [_key(run)], [by, why, str(round(KEPT_S))])

    async def asked(self, run: str) -> Stop | None:
        """See :meth:`..stops.Stops.asked`."""
        return _stop(await self._state.command("HMGET", _key(run), "by", "why", "at"))

    async def lift(self, run: str) -> None:
        """See :meth:`..stops.Stops.lift`."""
        await self._state.command("DEL", _key(run))

    async def heed(self, run: str, owner: str, occasion: str) -> Stop | None:
        """See :meth:`..stops.Stops.heed`."""
        return _stop(await self._state.script("stop_heed", [_key(run)], [owner, occasion]))


def _stop(found: Sequence[str | None]) -> Stop | None:
    by, why, at = found
    return None if by is None or why is None or at is None else Stop(by=by, why=why, at=float(at))


def _key(run: str) -> str:
    return f"{VERSION}:stop:{{{run}}}"
