"""
Bring one item to its end: call, look at the advice, obey it, call again.

A connection slot is held only while a call is. The order of one call: slot → grant → age checked →
``sent`` in the ledger → call → settle → advise → row → ``settled`` in the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.dispatch.advise import advise
from airflow_provider_llmbatch.engine.dispatch.attempt import Attempts, Tried
from airflow_provider_llmbatch.engine.dispatch.course import Course
from airflow_provider_llmbatch.engine.dispatch.limit.concurrency import Pace
from airflow_provider_llmbatch.engine.dispatch.limit.limiter import (
    Limiter,
    LimitRefusedError,
    WaitedTooLongError,
)
from airflow_provider_llmbatch.engine.dispatch.ports import Check, Reask
from airflow_provider_llmbatch.engine.dispatch.slots import Slots
from airflow_provider_llmbatch.engine.exchange import (
    Advice,
    Enlarge,
    Failure,
    Fallback,
    Final,
    OtherCredential,
    Reply,
    Retry,
    Rewrite,
    Stop,
)
from airflow_provider_llmbatch.engine.items import ItemError, Outcome, Request, Result, RunRef
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.state.protocols import Meter, Scope
from airflow_provider_llmbatch.errors import LLMBatchError, StoppedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How long to try."""

    #: calls that count as tries, per item
    max_attempts: int = 5
    #: of these, how many may ask again for a reply that does not satisfy the schema
    max_repairs: int = 1
    #: seconds an item may wait, its calls not counted
    max_wait_s: float = 6 * 3600.0
    #: stop when the first so many finished items failed in the same way for good; 0 never does
    fail_fast: int = 20
    #: end, to go on later, when nothing can be sent for longer than so many seconds; None waits here
    defer_after_s: float | None = None
    #: end, to go on at once, after so many seconds; None goes on to the end
    max_runtime_s: float | None = None


#: A row, and what books the call that brought it.
Ended = tuple[Result, Callable[[], None]]


class Pursuer:
    """
    Knows how to bring an item to its end.

    :param attempts: makes the calls.
    :param limiter: the queue in front of the limits.
    :param scope: what is taken from.
    :param slots: connection slots.
    :param pace: is told of calls.
    :param check: checks a reply's text.
    :param reask: makes the messages that ask again for a reply that failed the check.
    :param window: tokens that fit the model, if known.
    :param policy: how long to try.
    :param run: where results are made.
    :param observe: gets the events.
    :param clocks: the process's clocks.
    :param stop: stops the run.
    :param recall: finds an answer for a request that was throttled; None waits.
    """

    def __init__(
        self,
        *,
        attempts: Attempts,
        limiter: Limiter,
        scope: Scope,
        slots: Slots,
        pace: Pace,
        check: Check,
        reask: Reask,
        window: int | None,
        policy: Policy,
        run: RunRef,
        observe: events.Observer,
        clocks: Clocks,
        stop: Callable[[LLMBatchError], None],
        recall: Callable[[Request], Awaitable[Result | None]] | None = None,
    ) -> None:
        self._recall = recall
        self._attempts = attempts
        self._limiter = limiter
        self._scope = scope
        self._slots = slots
        self._pace = pace
        self._check = check
        self._reask = reask
        self._window = window
        self._policy = policy
        self._run = run
        self._observe = observe
        self._clocks = clocks
        self._stop = stop
        self._learnt: list[Rewrite] = []
        self._halt = asyncio.Event()
        self._why: LLMBatchError | None = None
        #: items that wait for their next try, without a slot
        self.parked = 0
        #: called when an item begins to wait
        self.on_park: Callable[[], None] = lambda: None

    def halt(self, why: LLMBatchError) -> None:
        """End every wait; what has no reply yet ends ``unsent``."""
        self._why = why
        self._halt.set()

    async def bring_to_end(self, course: Course) -> Ended:
        """Call until the item ends, or the run stops."""
        course.learnt = self._learnt
        while (ended := await self._try(course)) is None:
            pass
        return ended

    async def _try(self, course: Course) -> Ended | None:
        """Make one call and obey the advice about it; return what ends the item, if anything does."""
        try:
            async with self._slots.one():
                if self._why is not None:
                    return self._unsent(course)
                self._pace.sent(course.tokens)
                until = course.ready_at + course.calling_s + self._policy.max_wait_s
                tried = await self._attempts.once(course, until=until)
                self._pace.over(course.call_s)
        except LimitRefusedError as refused:
            return self._refused(course, refused.meter)
        except WaitedTooLongError as waited:
            return self._waited_too_long(course, waited.waits_for)
        except LLMBatchError as error:
            self._stop(error)
            return self._unsent(course)
        policy = self._policy
        history = course.history(
            self._clocks.now(), policy.max_attempts, policy.max_wait_s, self._clocks.luck()
        )
        advice = advise(tried.seen, tried.headers, history, self._clocks.wall())
        if advice is None and isinstance(tried.seen, Reply):
            return self._checked(course, tried, tried.seen)
        return await self._obey(course, tried, advice)

    def _checked(self, course: Course, tried: Tried, reply: Reply) -> Ended | None:
        """End the item with what the reply holds, or ask again for what it should hold."""
        checked = self._check(reply.text)
        if checked.problem is None:
            return course.answered(checked, reply, **self._here()), tried.book
        again = course.repairs < self._policy.max_repairs and course.tries + 1 < self._policy.max_attempts
        self._tell(course, checked.problem, "Retry" if again else "Final")
        if not again:
            return course.answered(checked, reply, **self._here()), tried.book
        course.otherwise = course.answered(checked, reply, **self._here())
        tried.book()
        messages = self._reask(course.request.messages, reply.text, checked.problem)
        course.repair(messages, self._attempts.more_tokens(course.request.messages, messages))
        return None

    async def _obey(self, course: Course, tried: Tried, advice: Advice | None) -> Ended | None:
        reply = tried.seen if isinstance(tried.seen, Reply) else None
        if isinstance(tried.seen, Failure):
            self._tell(course, tried.seen, type(advice).__name__)
        elif isinstance(advice, Final):
            self._tell(course, advice.error, "Final")
        final = self._final(course, advice)
        if final is not None:
            return course.ended(final, reply, **self._here()), tried.book
        if isinstance(advice, Enlarge):
            course.otherwise = course.ended(advice.otherwise, reply, **self._here())
        tried.book()
        await self._prepare_next(course, advice)
        return await self._recalled(course, advice)

    async def _recalled(self, course: Course, advice: Advice | None) -> Ended | None:
        """End a throttled item with an answer that there is already, instead of waiting."""
        if self._recall is None or not (isinstance(advice, Retry) and advice.shared):
            return None
        found = await self._recall(course.request)
        return None if found is None else (replace(found, attempts=course.calls), _nothing)

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
                credential = self._attempts.endpoint.credential
                why = f"No credential is left: the service refuses {credential!r}. {reason}"
                self._stop(StoppedError(why, retryable=False))
            case Stop(reason=reason, retryable=retryable):
                where = f"{self._attempts.endpoint.name}, model {model}"
                self._stop(StoppedError(f"{reason} ({where})", retryable=retryable))
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
        self.parked += 1
        self.on_park()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._halt.wait(), seconds)
        finally:
            self.parked -= 1

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

    def _refused(self, course: Course, meter: str) -> Ended:
        """End an item for which no room will ever be: the budget is spent, or it is too large."""
        if course.otherwise is not None:
            # There is no room to better the reply: what was paid is all there will be.
            return course.otherwise, _nothing
        budget = next((m for m in self._scope.meters if m.key == meter and m.window_s is None), None)
        if budget is not None:
            self._stop(_spent(budget, self._clocks.wall()))
            return self._unsent(course)
        message = f"The request needs {course.tokens} tokens, more than {meter} ever allows; raise the limit."
        final = Final(outcome=Outcome.TOO_LONG, error=ItemError(kind="over_limit", message=message))
        return course.ended(final, None, **self._here()), _nothing

    def _waited_too_long(self, course: Course, waits_for: str) -> Ended:
        message = (
            f"It waited {self._policy.max_wait_s:g} s, last for {waits_for}; raise max_wait or the limit."
        )
        final = Final(outcome=Outcome.EXHAUSTED, error=ItemError(kind="max_wait", message=message))
        return course.ended(final, None, **self._here()), _nothing

    def _unsent(self, course: Course) -> Ended:
        return course.unsent(str(self._why), **self._here()), _nothing

    def _here(self) -> dict[str, Any]:
        endpoint = self._attempts.endpoint
        return {
            "now": self._clocks.now(),
            "run": self._run,
            "endpoint": endpoint.name,
            "credential": endpoint.credential,
        }


def _nothing() -> None:
    """Book no call, since none was made."""


def _spent(budget: Meter, now: float) -> StoppedError:
    resets_s = budget.resets_in(now)
    if resets_s is None:
        return StoppedError(f"The budget {budget.key} is spent.", retryable=False)
    return StoppedError(
        f"The budget {budget.key} of this {budget.period} is spent; the next begins in {resets_s:.0f} s.",
        retryable=True,
        retry_after_s=resets_s,
    )
