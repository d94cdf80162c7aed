"""
Send requests until every item has ended.

One task per item that is under way; a connection slot is held only while a call is. The order of one
call: slot → grant → age checked → ``sent`` in the ledger → call → settle → advise → row → ``settled``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.dispatch.advise import advise
from airflow_provider_llmbatch.engine.dispatch.attempt import Attempts, Tried
from airflow_provider_llmbatch.engine.dispatch.course import Course
from airflow_provider_llmbatch.engine.dispatch.limit.concurrency import EVERY_S, Pace, concurrency
from airflow_provider_llmbatch.engine.dispatch.limit.limiter import Limiter, LimitRefusedError
from airflow_provider_llmbatch.engine.dispatch.ports import Check, Store
from airflow_provider_llmbatch.engine.dispatch.slots import Slots
from airflow_provider_llmbatch.engine.items import (
    Advice,
    BadItem,
    Enlarge,
    Failure,
    Fallback,
    Final,
    Item,
    ItemError,
    OtherCredential,
    Outcome,
    Reply,
    Request,
    Result,
    Retry,
    Rewrite,
    RunRef,
    Stop,
)
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.state.protocols import Scope
from airflow_provider_llmbatch.errors import LLMBatchError, StoppedError, StoreError

#: Items that may wait for their next try at the same time, beyond those in slots.
WAITING_AT_MOST = 1000
#: Items composed in a row before calls get a turn.
TURN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How long to try."""

    #: calls that count as tries, per item
    max_attempts: int = 5
    #: seconds an item may wait, its calls not counted
    max_wait_s: float = 6 * 3600.0
    #: stop when the first so many finished items failed in the same way for good; 0 never does
    fail_fast: int = 20


class Dispatcher:
    """
    Brings every item to its end.

    :param attempts: makes the calls.
    :param limiter: the queue in front of the limits; stopped when the run stops.
    :param scope: what is taken from.
    :param slots_at_most: calls that this process may keep open.
    :param store: takes the rows.
    :param check: checks a reply's text.
    :param window: tokens that fit the model, if known.
    :param policy: how long to try.
    :param run: where results are made.
    :param observe: gets the events.
    :param clocks: the process's clocks.
    """

    def __init__(
        self,
        *,
        attempts: Attempts,
        limiter: Limiter,
        scope: Scope,
        slots_at_most: int,
        store: Store,
        check: Check,
        window: int | None,
        policy: Policy,
        run: RunRef,
        observe: events.Observer,
        clocks: Clocks,
    ) -> None:
        self._attempts = attempts
        self._limiter = limiter
        self._scope = scope
        self._slots_at_most = slots_at_most
        self._store = store
        self._check = check
        self._window = window
        self._policy = policy
        self._run = run
        self._observe = observe
        self._now = clocks.now
        self._wall = clocks.wall
        self._luck = clocks.luck
        self._pace = Pace()
        self._slots = Slots(concurrency(scope.meters, 1.0, self._pace.p95(0.0), slots_at_most))
        self._learnt: list[Rewrite] = []
        self._live = 0
        self._parked = 0
        self._room = asyncio.Event()
        self._halt = asyncio.Event()
        self._first_ends: list[tuple[Outcome, str, object]] = []
        #: why the run stopped before its end
        self.stopped: LLMBatchError | None = None

    async def run(self, items: Iterator[Item | BadItem], compose: Callable[[Item], Request | Result]) -> None:
        """
        Dispatch until the items are over or the run stops; every item then has its row.

        Replies to calls that are open when the run stops are still awaited and stored.

        :param compose: makes a request of an item, or the row of one that cannot be sent.
        """
        with _unwrapped():
            await self._run_all(items, compose)

    async def _run_all(
        self, items: Iterator[Item | BadItem], compose: Callable[[Item], Request | Result]
    ) -> None:
        async with asyncio.TaskGroup() as group:
            pacing = group.create_task(self._keep_pace())
            for number, item in enumerate(items):
                if number % TURN == 0:
                    await asyncio.sleep(0)
                await self._until_room()
                if isinstance(self.stopped, StoreError):
                    # Storage fails, or a newer try has taken over and owns what is left.
                    break
                if self.stopped is not None:
                    self._put(self._left(item))
                    continue
                request = self._bad(item) if isinstance(item, BadItem) else compose(item)
                if isinstance(request, Result):
                    self._put(request)
                    continue
                self._live += 1
                group.create_task(self._bring_to_end(self._course(request)))
            while self._live:
                await self._until(lambda: not self._live)
            pacing.cancel()

    def stop(self, why: LLMBatchError) -> None:
        """Send nothing more; what is open is still awaited."""
        if self.stopped is None:
            self.stopped = why
            self._halt.set()
            self._limiter.refuse_all(why)
            self._room.set()

    def _course(self, request: Request) -> Course:
        course = Course(request=request, ready_at=self._now(), started_at=self._wall())
        for rewrite in self._learnt:
            course.rewrite(rewrite)
        return course

    async def _bring_to_end(self, course: Course) -> None:
        try:
            while (ended := await self._try(course)) is None:
                pass
            result, book = ended
            self._put(result)
            book()
        except LLMBatchError as error:
            self.stop(error)
        finally:
            self._live -= 1
            self._room.set()

    async def _try(self, course: Course) -> tuple[Result, Callable[[], None]] | None:
        """Make one call and obey the advice about it; return the row that ends the item, if it does."""
        try:
            async with self._slots.one():
                if self.stopped is not None:
                    return self._unsent(course)
                self._pace.sent(course.tokens)
                tried = await self._attempts.once(course)
                self._pace.over(course.call_s)
        except LimitRefusedError as refused:
            return self._refused(course, refused.meter)
        except LLMBatchError as error:
            self.stop(error)
            return self._unsent(course)
        history = course.history(
            self._now(), self._policy.max_attempts, self._policy.max_wait_s, self._luck()
        )
        advice = advise(tried.seen, tried.headers, history, self._wall())
        if advice is None and isinstance(tried.seen, Reply):
            checked = self._check(tried.seen.text)
            if checked.problem is not None:
                self._tell(course, checked.problem, "Final")
            return course.answered(checked, tried.seen, **self._here()), tried.book
        return await self._obey(course, tried, advice)

    async def _obey(
        self, course: Course, tried: Tried, advice: Advice | None
    ) -> tuple[Result, Callable[[], None]] | None:
        reply = tried.seen if isinstance(tried.seen, Reply) else None
        if isinstance(tried.seen, Failure):
            self._tell(course, tried.seen, type(advice).__name__)
        elif isinstance(advice, Final):
            self._tell(course, advice.error, "Final")
        final = self._final(course, advice)
        if final is not None:
            return course.ended(final, reply, **self._here()), tried.book
        tried.book()
        await self._prepare_next(course, advice)
        return None

    def _final(self, course: Course, advice: Advice | None) -> Final | None:
        """Return how the item ends, if the advice ends it or cannot be followed."""
        match advice:
            case Final():
                return advice
            case Fallback(otherwise=final):
                return final
            case Enlarge(otherwise=final):
                return None if course.enlarge(self._window) else final
        return None

    async def _prepare_next(self, course: Course, advice: Advice | None) -> None:
        """Do what has to be done before the item's next call, or stop the run."""
        model = course.request.model
        match advice:
            case Rewrite():
                course.rewrite(advice)
                self._learn(advice, model)
            case OtherCredential(reason=reason):
                self.stop(StoppedError(f"No credential is left: {reason}", retryable=False))
            case Stop(reason=reason, retryable=retryable):
                where = f"{self._attempts.endpoint.name}, model {model}"
                self.stop(StoppedError(f"{reason} ({where})", retryable=retryable))
            case Retry(delay_s=delay, shared=True):
                course.throttled += 1
                await self._throttle(delay, model)
            case Retry(delay_s=delay, uses_try=uses_try):
                course.tries += uses_try
                await self._park(delay)

    async def _throttle(self, seconds: float, model: str) -> None:
        endpoint = self._attempts.endpoint
        self._observe.on(
            events.Throttled(
                delay_s=seconds, endpoint=endpoint.name, model=model, credential=endpoint.credential
            )
        )
        await self._limiter.throttle(seconds)

    def _learn(self, rewrite: Rewrite, model: str) -> None:
        """Send no further item with a parameter that the service refuses."""
        if any(known.drop == rewrite.drop for known in self._learnt):
            return
        self._learnt.append(rewrite)
        self._observe.on(
            events.Rewritten(
                endpoint=self._attempts.endpoint.name,
                model=model,
                drop=rewrite.drop,
                rename_to=rewrite.rename_to,
            )
        )

    async def _park(self, seconds: float) -> None:
        """Wait for the next try, without a slot; a stop of the run ends the wait."""
        self._parked += 1
        self._room.set()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._halt.wait(), seconds)
        finally:
            self._parked -= 1

    async def _until_room(self) -> None:
        """Wait until another item may be under way."""
        await self._until(
            lambda: (
                self.stopped is not None
                or (self._live - self._parked < self._slots.size + TURN and self._parked < WAITING_AT_MOST)
            )
        )

    async def _until(self, there: Callable[[], bool]) -> None:
        while not there():
            self._room.clear()
            await self._room.wait()

    async def _keep_pace(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            oldest = min(self._attempts.open.values(), default=self._now())
            p95 = self._pace.p95(self._now() - oldest)
            size = concurrency(self._scope.meters, self._pace.mean_tokens, p95, self._slots_at_most)
            self._slots.resize(size)
            self._room.set()

    def _put(self, result: Result) -> None:
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
        self._fail_fast(result)

    def _fail_fast(self, result: Result) -> None:
        """Stop when the first items all fail in one way that no retry helps."""
        if len(self._first_ends) >= self._policy.fail_fast or self.stopped is not None:
            return
        error = result.error
        same = (result.outcome, error.kind if error else "", error.code if error else None)
        self._first_ends.append(same)
        alike = set(self._first_ends) == {same} and not result.outcome.is_good and result.outcome.is_final
        if alike and error is not None and len(self._first_ends) == self._policy.fail_fast:
            self.stop(
                StoppedError(
                    f"The first {self._policy.fail_fast} finished items all ended {result.outcome}: "
                    f"{error.message} Nothing more was sent; mend the cause or set fail_fast=0.",
                    retryable=False,
                )
            )

    def _tell(self, course: Course, failure: Failure | ItemError, advice: str) -> None:
        self._observe.on(
            events.CallFailed(
                kind=failure.kind,
                status=failure.status,
                code=failure.code,
                message=failure.message,
                advice=advice,
                item_id=course.request.id,
                attempt=course.calls,
                endpoint=self._attempts.endpoint.name,
                model=course.request.model,
            )
        )

    def _here(self) -> dict[str, Any]:
        endpoint = self._attempts.endpoint
        return {
            "now": self._now(),
            "run": self._run,
            "endpoint": endpoint.name,
            "credential": endpoint.credential,
        }

    def _refused(self, course: Course, meter: str) -> tuple[Result, Callable[[], None]]:
        budget = any(m.key == meter and m.window_s is None for m in self._scope.meters)
        if budget:
            self.stop(StoppedError(f"The budget {meter} is spent.", retryable=False))
            return self._unsent(course)
        message = f"The request needs {course.tokens} tokens, more than {meter} ever allows; raise the limit."
        error = ItemError(kind="over_limit", message=message)
        final = Final(outcome=Outcome.TOO_LONG, error=error)
        return course.ended(final, None, **self._here()), _nothing

    def _unsent(self, course: Course) -> tuple[Result, Callable[[], None]]:
        return course.unsent(str(self.stopped), **self._here()), _nothing

    def _left(self, item: Item | BadItem) -> Result:
        error = ItemError(kind="stopped", message=str(self.stopped))
        return Result(index=item.index, id=item.id, outcome=Outcome.UNSENT, error=error, run=self._run)

    def _bad(self, item: BadItem) -> Result:
        return Result(
            index=item.index,
            id=item.id,
            outcome=Outcome.UNRENDERED,
            error=item.error,
            started_at=self._wall(),
            run=self._run,
        )


def _nothing() -> None:
    """Book no call, since none was made."""


@contextlib.contextmanager
def _unwrapped() -> Iterator[None]:
    """Raise what a task of the group raised, not the group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group
