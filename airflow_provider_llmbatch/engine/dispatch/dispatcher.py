"""Keep the right number of items under way until every one has its row."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.dispatch.course import Course
from airflow_provider_llmbatch.engine.dispatch.fail_fast import FailFast
from airflow_provider_llmbatch.engine.dispatch.lanes import Lanes
from airflow_provider_llmbatch.engine.dispatch.ports import Store
from airflow_provider_llmbatch.engine.dispatch.pursue import Pursuer
from airflow_provider_llmbatch.engine.dispatch.reuse import Reuse
from airflow_provider_llmbatch.engine.dispatch.router import Router
from airflow_provider_llmbatch.engine.dispatch.work import Chain, Work, broken, not_sent, turns
from airflow_provider_llmbatch.engine.items import BadItem, Item, Message, Result, RunRef
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.errors import LLMBatchError, StoppedError, StoreError

#: Items that may wait for their next try at the same time, beyond those in slots.
WAITING_AT_MOST = 1000
#: Items composed in a row before calls get a turn.
TURN = 16


class Dispatcher:
    """
    Takes work in, keeps it going, and stores the rows.

    :param store: takes the rows.
    :param fail_fast: says when it is pointless to go on.
    :param run: where results are made.
    :param observe: gets the events.
    :param clocks: the process's clocks.
    :param reuse: finds answers that others have paid for; None asks every question.
    """

    def __init__(
        self,
        *,
        store: Store,
        fail_fast: FailFast,
        run: RunRef,
        observe: events.Observer,
        clocks: Clocks,
        reuse: Reuse | None = None,
    ) -> None:
        self._reuse = reuse
        self._store = store
        self._fail_fast = fail_fast
        self._run = run
        self._observe = observe
        self._clocks = clocks
        self._live = 0
        self._room = asyncio.Event()
        #: why the run stopped before its end
        self.stopped: LLMBatchError | None = None
        self._lanes: Lanes
        self._router: Router
        self._pursuer: Pursuer

    async def run(self, work: Iterator[Work], lanes: Lanes, router: Router, pursuer: Pursuer) -> None:
        """
        Dispatch until the work is over or the run stops; every item then has its row.

        Replies to calls that are open when the run stops are still awaited and stored.

        :param lanes: the ways a call can go.
        :param router: says where an item goes first.
        :param pursuer: brings an item to its end.
        :raises StoreError: when a row cannot be stored.
        """
        self._lanes, self._router, self._pursuer = lanes, router, pursuer
        pursuer.on_park = lanes.on_room = self._room.set
        try:
            async with asyncio.TaskGroup() as group:
                for number, piece in enumerate(work):
                    if number % TURN == 0:
                        await asyncio.sleep(0)
                    await self._until(self._has_room)
                    if self._leaves_the_rest():
                        break
                    self._take_in(piece, group)
                await self._until(lambda: not self._live)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from failures

    def _leaves_the_rest(self) -> bool:
        """
        Whether what is left gets no row now: no row is ``unsent`` as well.

        Storage fails, or a newer try has taken over and owns it, or this one goes on with it soon.
        """
        why = self.stopped
        return isinstance(why, StoreError) or (
            isinstance(why, StoppedError) and why.retry_after_s is not None
        )

    def stop(self, why: LLMBatchError) -> None:
        """Send nothing more; what is open is still awaited."""
        if self.stopped is None:
            self.stopped = why
            self._pursuer.halt(why)
            if self._reuse is not None:
                self._reuse.stop()
            for lane in self._lanes:
                lane.limiter.refuse_all(why)
            self._room.set()

    def room_has_changed(self) -> None:
        """Look again whether another item may be under way."""
        self._room.set()

    def _take_in(self, piece: Work, group: asyncio.TaskGroup) -> None:
        if isinstance(piece, Chain):
            self._begin(self._bring_chain(piece), group)
        elif self.stopped is not None:
            self._put(not_sent(piece, str(self.stopped), "stopped", self._run))
        elif isinstance(piece, BadItem):
            self._put(broken(piece, self._run, self._clocks.wall()))
        else:
            course = self._router.start(piece, ())
            if isinstance(course, Result):
                self._put(course)
            else:
                self._begin(self._bring(course), group)

    def _begin(self, coroutine: Coroutine[None, None, None], group: asyncio.TaskGroup) -> None:
        self._live += 1
        group.create_task(coroutine)

    async def _bring(self, course: Course) -> None:
        with self._alive():
            await self._finish(course)

    async def _finish(self, course: Course) -> Result:
        """Find the answer somebody has paid for, or get one; store the row before its call is booked."""
        if self._reuse is None:
            return await self._paid(course)
        question = course.request
        found = await self._reuse.find(question)
        if found is not None:
            return self._put(found)
        result = await self._paid(course)
        await self._reuse.settle(question, result, by_fallback=course.request is not question)
        return result

    async def _paid(self, course: Course) -> Result:
        course.ready_at = self._clocks.now()
        result, book = await self._pursuer.bring_to_end(course)
        self._put(result)
        book()
        return result

    async def _bring_chain(self, chain: Chain) -> None:
        """Send the turns one after the other; a turn that fails leaves the rest unsent."""
        with self._alive():
            earlier: list[Message] = []
            broken_by = ""
            for item in chain.items:
                result, course = await self._turn(item, chain, earlier, broken_by)
                if course is not None and result.outcome.is_good:
                    earlier = turns(course.request, earlier, result)
                elif not broken_by:
                    broken_by = f"Item {item.id!r} of the same group ended {result.outcome}."

    async def _turn(
        self, item: Item | BadItem, chain: Chain, earlier: list[Message], broken_by: str
    ) -> tuple[Result, Course | None]:
        done = chain.done.get(item.index)
        if isinstance(item, BadItem):
            return done or self._put(broken(item, self._run, self._clocks.wall())), None
        if done is None and (broken_by or self.stopped is not None):
            why, kind = (broken_by, "broken_chain") if broken_by else (str(self.stopped), "stopped")
            return self._put(not_sent(item, why, kind, self._run)), None
        course = self._router.start(item, earlier)
        if isinstance(course, Result):
            return done or self._put(course), None
        return done or await self._finish(course), course

    @contextlib.contextmanager
    def _alive(self) -> Iterator[None]:
        """Count what is under way; an error of ours stops the run in good order."""
        try:
            yield
        except LLMBatchError as error:
            self.stop(error)
        finally:
            self._live -= 1
            self._room.set()

    def _has_room(self) -> bool:
        parked = self._pursuer.parked
        under_way = self._live - parked
        return self.stopped is not None or (
            parked < WAITING_AT_MOST and self._lanes.has_room(under_way - TURN)
        )

    async def _until(self, there: Callable[[], bool]) -> None:
        while not there():
            self._room.clear()
            await self._room.wait()

    def _put(self, result: Result) -> Result:
        self._store.add(result)
        self._observe.on(
            events.ItemDone(
                outcome=result.outcome,
                usage=result.usage,
                cost=result.cost,
                queue_ms=result.queue_ms,
                call_ms=result.call_ms,
                endpoint=result.endpoint or "",
                model=result.served_model or "",
                item_id=result.id,
                salvage=result.salvage,
            )
        )
        if self.stopped is None and (reason := self._fail_fast.reason(result)) is not None:
            self.stop(StoppedError(reason, retryable=False))
        return result
