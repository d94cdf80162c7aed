"""
One payment for one question, across tasks and runs.

Before a request is sent its question is claimed. Who does not get it waits: for the answer, which then
becomes this item's row without a payment, or for the end of the claim.

Where a connection only allows it as the answer to throttling, every request is sent, answers are noted, and a
request that the service throttles takes the answer that there may be, instead of waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

from airflow_provider_llmbatch.engine.items import Cost, Request, Result, RunRef, Usage
from airflow_provider_llmbatch.engine.state.claims import HELD_S, Claimed, Claims, Pointer
from airflow_provider_llmbatch.errors import LLMBatchError

#: Whether to look for an answer before a request is sent, or only once the service throttles it.
When = Literal["first", "throttled"]
#: Longest wait before somebody else's question is looked at again. Seconds.
LOOK_AGAIN_S = 1.0


class Reuse:
    """
    Claims questions for one run, and finds the answers of others.

    :param claims: who asks what.
    :param holder: the task that claims, and ``fence`` its try.
    :param here: result folder and chunk of this run, where its own answers will lie.
    :param question: fingerprint of a request.
    :param read: reads the row a pointer points to; None when it is gone or is no answer.
    :param run: where this run's rows are made.
    :param wall: Unix seconds.
    """

    def __init__(
        self,
        claims: Claims,
        *,
        holder: str,
        fence: int,
        here: tuple[str, int],
        question: Callable[[Request], str],
        read: Callable[[Pointer], Result | None],
        run: RunRef,
        wall: Callable[[], float],
    ) -> None:
        self._claims = claims
        self._holder = holder
        self._fence = fence
        self._here = here
        self._question = question
        self._read = read
        self._run = run
        self._wall = wall
        self._held: set[str] = set()
        self._over = asyncio.Event()
        #: US dollars that the found answers had cost
        self.saved_usd = Decimal(0)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Hold on to claims while their calls are under way; let go of what is left at the end."""
        renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewing.cancel()
            with contextlib.suppress(LLMBatchError):
                await self._claims.release(sorted(self._held), self._holder)

    def stop(self) -> None:
        """Wait for nobody's answer any more."""
        self._over.set()

    async def find(self, request: Request) -> Result | None:
        """
        Claim the request's question, or wait for the answer.

        :return: the row that another's answer makes; None when the question is ours to ask, or when the run
            stops, in which case it is not asked.
        """
        question = self._question(request)
        while not self._over.is_set():
            claimed = await self._claims.claim(question, self._holder, fence=self._fence)
            if claimed.won:
                self._held.add(question)
                return None
            if claimed.answer is not None:
                result = await self._adopted(request, question, claimed.answer)
                if result is not None:
                    return result
            else:
                await self._wait(claimed)
        return None

    async def recall(self, request: Request) -> Result | None:
        """Return the row of an answer to a request that was throttled: none, as the question is ours."""
        return None

    async def settle(self, request: Request, result: Result, *, by_fallback: bool = False) -> None:
        """
        Say where our answer lies, or let others ask when there is none.

        :param by_fallback: whether somebody else has answered than the request was for.
        """
        question = self._question(request)
        if question not in self._held:
            return
        self._held.discard(question)
        if result.outcome.is_reusable and not by_fallback:
            path, chunk = self._here
            pointer = Pointer(path=path, chunk=chunk, index=result.index)
            await self._claims.answer(question, self._holder, pointer)
        else:
            await self._claims.release([question], self._holder)

    async def _adopted(self, request: Request, question: str, pointer: Pointer) -> Result | None:
        found = await asyncio.to_thread(self._read, pointer)
        if found is None or not found.outcome.is_reusable:
            await self._claims.forget(question, pointer)
            return None
        return self._taken_over(request, found)

    def _taken_over(self, request: Request, found: Result) -> Result:
        """Return the row that somebody else's answer makes of a request."""
        self.saved_usd += found.cost.usd
        return replace(
            found,
            index=request.index,
            id=request.id,
            prompt=request.prompt,
            variant=request.variant,
            metadata=request.metadata,
            attempts=0,
            usage=Usage(),
            cost=Cost(),
            saved_usd=found.cost.usd + (found.saved_usd or 0),
            queue_ms=0.0,
            call_ms=0.0,
            started_at=self._wall(),
            run=self._run,
        )

    async def _wait(self, claimed: Claimed) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), min(claimed.held_s, LOOK_AGAIN_S))

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(HELD_S / 3)
            # A state that is away for a moment is no reason to stop; a claim outlives two missed renewals.
            with contextlib.suppress(LLMBatchError):
                await self._claims.renew(sorted(self._held), self._holder)


class Recall(Reuse):
    """
    Finds the answers of others only for requests that the service throttles, and notes its own.

    :param may_repeat: whether an answer that was given before will do for a request.
    """

    def __init__(self, claims: Claims, *, may_repeat: Callable[[Request], bool], **further: Any) -> None:
        super().__init__(claims, **further)
        self._may_repeat = may_repeat

    async def find(self, request: Request) -> Result | None:
        """Look for nothing: the request is sent."""
        return None

    async def recall(self, request: Request) -> Result | None:
        """Return the row of an answer that there is already, if it will do; nobody waits for one."""
        if not self._may_repeat(request):
            return None
        # A state that is away holds up the next take, not this look.
        with contextlib.suppress(LLMBatchError):
            pointer = await self._claims.look(self._question(request))
            found = None if pointer is None else await asyncio.to_thread(self._read, pointer)
            if found is not None and found.outcome.is_reusable:
                return self._taken_over(request, found)
        return None

    async def settle(self, request: Request, result: Result, *, by_fallback: bool = False) -> None:
        """Note where our answer lies, unless there is one already."""
        is_ours = result.outcome.is_reusable and result.saved_usd is None and not by_fallback
        if not is_ours or not self._may_repeat(request):
            return
        question = self._question(request)
        with contextlib.suppress(LLMBatchError):
            claimed = await self._claims.claim(question, self._holder, fence=self._fence)
            if claimed.won:
                path, chunk = self._here
                pointer = Pointer(path=path, chunk=chunk, index=result.index)
                await self._claims.answer(question, self._holder, pointer)
