"""Where a run stands, kept in the shared state for whoever looks from another process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Usage
from airflow_provider_llmbatch.engine.observe.events import (
    Event,
    ItemDone,
    Pulse,
    RunEnded,
    RunStarted,
)
from airflow_provider_llmbatch.engine.observe.rate import Rate
from airflow_provider_llmbatch.engine.state.protocols import Standing
from airflow_provider_llmbatch.errors import StoreError

#: Seconds after which it is stored anew.
EVERY_S = 2.0
#: Longest wait for the shared state, in seconds; a killed task has few of them left.
PATIENCE_S = 2.0

_log = logging.getLogger(__name__)


class ProgressObserver:
    """
    Keep how far a run is, and store it when asked to.

    :param report: takes the standing; see :meth:`.protocols.Progress.report`.
    :param owner: the task instance.
    :param result_path: where its results are.
    :param patience_s: longest wait for ``report``.
    :param now: a clock that only goes forward, in seconds.
    """

    def __init__(
        self,
        report: Callable[[Standing], Awaitable[None]],
        *,
        owner: str,
        result_path: str,
        patience_s: float = PATIENCE_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._owner = owner
        self._result_path = result_path
        self._patience_s = patience_s
        self._now = now
        self._rate = Rate(now())
        self._state = "running"
        self._items = self._resumed = 0
        self._counts: Counter[Outcome] = Counter()
        self._usage = Usage()
        self._cost = Cost()
        self._waits_for = ""
        self._use: Mapping[str, float] = {}
        self._failed = False

    def on(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case ItemDone():
                self._counts[event.outcome] += 1
                self._usage += event.usage
                self._cost += event.cost
            case Pulse():
                self._waits_for, self._use = event.waits_for, event.use
            case RunStarted():
                self._items, self._resumed = event.items, event.resumed
            case RunEnded():
                self._state, self._waits_for = event.state, ""

    def standing(self) -> Standing:
        """Return where the run stands now."""
        # What is unsent or exhausted has a row, but is sent again by the next try.
        finished = sum(n for outcome, n in self._counts.items() if outcome.is_final)
        done = self._resumed + finished
        rate = self._rate.at(self._now(), finished)
        usage = self._usage
        figures: dict[str, Any] = {
            "state": self._state,
            "resumed": self._resumed,
            "counts": {str(outcome): n for outcome, n in self._counts.items()},
            "rate": round(rate, 3),
            "eta_s": round((self._items - done) / rate) if rate else None,
            "usd": format(self._cost.usd, "f"),
            "unpriced": self._cost.unpriced,
            "tokens": {
                "in": usage.prompt,
                "cached": usage.cached,
                "out": usage.completion,
                "reasoning": usage.reasoning,
            },
            "waits_for": self._waits_for,
            "use": {name: round(use, 3) for name, use in self._use.items()},
        }
        return Standing(
            owner=self._owner, result_path=self._result_path, done=done, items=self._items, figures=figures
        )

    @contextlib.asynccontextmanager
    async def kept(self, every_s: float = EVERY_S) -> AsyncIterator[None]:
        """Store where the run stands every few seconds inside, and once more at the end, however it comes."""

        async def go_on() -> None:
            while True:
                await asyncio.sleep(every_s)
                await self.store()

        storing = asyncio.create_task(go_on())
        try:
            yield
        finally:
            storing.cancel()
            await self.store()

    async def store(self) -> None:
        """Store where the run stands; a store that is away is told of once and never hurts the run."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._report(self.standing())
        except TimeoutError:
            self._tell(f"no answer within {self._patience_s:g} s")
        except StoreError as error:
            self._tell(str(error))

    def _tell(self, why: str) -> None:
        if not self._failed:
            self._failed = True
            _log.warning("How far the run is cannot be stored, and the run goes on: %s", why)
