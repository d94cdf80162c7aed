"""
Bring one item to its end: call, look at the advice, obey it, call again.

A connection slot is held only while a call is. The order of one call: slot → grant → age checked →
``sent`` in the ledger → call → settle → advise → row → ``settled`` in the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.dispatch.advise import History, advise, backoff
from airflow_provider_llmbatch.engine.dispatch.attempt import Tried
from airflow_provider_llmbatch.engine.dispatch.course import Course
from airflow_provider_llmbatch.engine.dispatch.lane import Lane
from airflow_provider_llmbatch.engine.dispatch.lanes import Lanes, in_short
from airflow_provider_llmbatch.engine.dispatch.limit.refusals import (
    LimitRefusedError,
    SentAwayError,
    WaitedTooLongError,
)
from airflow_provider_llmbatch.engine.dispatch.policy import Policy
from airflow_provider_llmbatch.engine.dispatch.ports import Check, Reask
from airflow_provider_llmbatch.engine.dispatch.router import Router, facts_of
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
from airflow_provider_llmbatch.engine.state.protocols import Meter
from airflow_provider_llmbatch.errors import LLMBatchError, StoppedError

#: Seconds after which an item that has nowhere to go looks again.
HELD_S = 1.0
#: A row, and what books the call that brought it.
Ended = tuple[Result, Callable[[], None]]


class Pursuer:
    """
    Knows how to bring an item to its end.

    :param router: says where an item goes next.
    :param lanes: the ways there are.
    :param check: checks a reply's text.
    :param reask: makes the messages that ask again for a reply that failed the check.
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
        router: Router,
        lanes: Lanes,
        check: Check,
        reask: Reask,
        policy: Policy,
        run: RunRef,
        observe: events.Observer,
        clocks: Clocks,
        stop: Callable[[LLMBatchError], None],
        recall: Callable[[Request], Awaitable[Result | None]] | None = None,
    ) -> None:
        self._recall = recall
        self._router = router
        self._lanes = lanes
        self._check = check
        self._reask = reask
        self._policy = policy
        self._run = run
        self._observe = observe
        self._clocks = clocks
        self._stop = stop
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
        while (ended := await self._try(course)) is None:
            pass
        return ended

    async def _try(self, course: Course) -> Ended | None:
        """Make one call and obey the advice about it; return what ends the item, if anything does."""
        tried = await self._call(course)
        if not isinstance(tried, Tried):
            return tried
        policy = self._policy
        history = course.history(
            self._clocks.now(), policy.max_attempts, policy.max_wait_s, self._clocks.luck()
        )
        advice = advise(tried.seen, tried.headers, history, self._clocks.wall())
        self._take_note(course, tried, advice)
        if advice is None and isinstance(tried.seen, Reply):
            return self._checked(course, tried, tried.seen)
        return await self._obey(course, tried, advice, history)

    async def _call(self, course: Course) -> Tried | Ended | None:
        """Make one call; return what ends the item instead, or None when it has to look for another way."""
        if not course.lane.is_open(self._clocks.now()):
            self._router.elsewhere(course)
        lane = course.lane
        until = course.ready_at + course.calling_s + self._policy.max_wait_s
        try:
            async with lane.slots.one():
                if self._why is not None:
                    return self._unsent(course)
                if self._router.reconsider(course):
                    return None
                lane.pace.sent(course.tokens)
                tried = await lane.attempts.once(course, until=until)
                lane.pace.over(course.call_s)
                return tried
        except SentAwayError:
            return None if self._router.elsewhere(course) else await self._hold(course)
        except LimitRefusedError as refused:
            return self._refused(course, refused.meter)
        except WaitedTooLongError as waited:
            return self._waited_too_long(course, waited.waits_for)
        except LLMBatchError as error:
            self._stop(error)
            return self._unsent(course)

    def _take_note(self, course: Course, tried: Tried, advice: Advice | None) -> None:
        """Tell the lane what the call says about it."""
        lane = course.lane
        lane.took(course.call_s)
        match advice:
            case Retry(uses_try=True) | Fallback():
                lane.has_failed(course.request.index, f"{self._run.dag}/{self._run.run}/{self._run.task}")
            case Final(outcome=Outcome.EXHAUSTED) | Retry(shared=False) | OtherCredential() | Stop():
                pass
            case _:
                self._lanes.answered(lane, tried.granted_at)

    async def _hold(self, course: Course) -> Ended | None:
        """Let an item wait that has nowhere to go at the moment."""
        await self._park(HELD_S)
        waited_s = self._clocks.now() - course.ready_at - course.calling_s
        return self._waited_too_long(course, "gate") if waited_s > self._policy.max_wait_s else None

    def _checked(self, course: Course, tried: Tried, reply: Reply) -> Ended | None:
        """End the item with what the reply holds, or ask again for what it should hold."""
        checked = self._check(reply.text)
        if checked.problem is None:
            return course.answered(checked, reply, **self._here(course)), tried.book
        again = course.repairs < self._policy.max_repairs and course.tries + 1 < self._policy.max_attempts
        self._tell(course, checked.problem, "Retry" if again else "Final")
        course.otherwise = course.answered(checked, reply, **self._here(course))
        if not again and not self._router.detour(course, facts_of(reply, Outcome.INVALID_OUTPUT)):
            return course.otherwise, tried.book
        tried.book()
        if again:
            messages = self._reask(course.request.messages, reply.text, checked.problem)
            more = course.lane.attempts.more_tokens(course.request.messages, messages)
            course.repair(messages, more)
        return None

    async def _obey(
        self, course: Course, tried: Tried, advice: Advice | None, history: History
    ) -> Ended | None:
        if isinstance(advice, Retry) and advice.shared:
            await self._throttle(course.lane, advice.delay_s, course.request.model)
            found = None if self._recall is None else await self._recall(course.request)
            if found is not None:
                return replace(found, attempts=course.calls), tried.book
        here = course.lane
        final = self._final(course, advice, history)
        self._remember(course, tried, advice, final)
        moved = not isinstance(advice, OtherCredential) and self._router.detour(
            course, facts_of(tried.seen, None if final is None else final.outcome)
        )
        if isinstance(tried.seen, Failure):
            self._tell(course, tried.seen, "Fallback" if moved else type(advice).__name__, here)
        elif final is not None:
            self._tell(course, final.error, "Fallback" if moved else "Final", here)
        if final is not None and not moved and course.otherwise is not None:
            return course.otherwise, tried.book
        tried.book()
        if not moved:
            await self._prepare_next(course, tried.seen, advice)
        return None

    def _remember(self, course: Course, tried: Tried, advice: Advice | None, final: Final | None) -> None:
        """Keep how the item ends when nothing better can be had."""
        reply = tried.seen if isinstance(tried.seen, Reply) else None
        if final is not None:
            course.otherwise = course.ended(final, reply, **self._here(course))
        elif isinstance(advice, Enlarge):
            course.otherwise = course.ended(advice.otherwise, reply, **self._here(course))

    def _final(self, course: Course, advice: Advice | None, history: History) -> Final | None:
        """Return how the item ends, if the advice ends it or cannot be followed."""
        match advice:
            case Final():
                return advice
            case Fallback(otherwise=final):
                # An endpoint that fails everybody says nothing about this item.
                waits = course.lane.in_outage and history.waited_s < history.max_wait_s
                return None if waits else final
            case Enlarge(otherwise=final):
                return None if course.enlarge(course.lane.window) else final
        return None

    async def _prepare_next(self, course: Course, seen: Reply | Failure, advice: Advice | None) -> None:
        """Do what has to be done before the item's next call, or stop the run."""
        lane, model = course.lane, course.request.model
        match advice:
            case Rewrite():
                course.rewrite(advice)
                self._learn(lane, advice, model)
            case OtherCredential(reason=reason):
                await self._lanes.refuse(lane, in_short(seen), reason)
            case Stop(reason=reason, retryable=retryable):
                self._stop(StoppedError(f"{reason} ({lane.name}, model {model})", retryable=retryable))
            case Retry(shared=True):
                course.throttled += 1
            case Retry(delay_s=delay, uses_try=uses_try):
                course.tries += uses_try
                await self._park(delay)
            case Fallback():
                await self._park(backoff(2, self._clocks.luck()))

    async def _throttle(self, lane: Lane, seconds: float, model: str) -> None:
        endpoint = lane.attempts.endpoint
        self._observe.on(
            events.Throttled(
                delay_s=seconds, endpoint=endpoint.name, model=model, credential=endpoint.credential
            )
        )
        await lane.limiter.throttle(seconds)

    def _learn(self, lane: Lane, rewrite: Rewrite, model: str) -> None:
        """Send no further item with a parameter that the service refuses."""
        if any(known.drop == rewrite.drop for known in lane.learnt):
            return
        lane.learnt.append(rewrite)
        self._observe.on(
            events.Rewritten(
                endpoint=lane.name,
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

    def _tell(
        self, course: Course, failure: Failure | ItemError, advice: str, lane: Lane | None = None
    ) -> None:
        self._observe.on(
            events.CallFailed(
                kind=failure.kind,
                status=failure.status,
                code=failure.code,
                message=failure.message,
                advice=advice,
                item_id=course.request.id,
                attempt=course.calls,
                endpoint=(lane or course.lane).name,
                model=course.request.model,
            )
        )

    def _refused(self, course: Course, meter: str) -> Ended:
        """End an item for which no room will ever be: the budget is spent, or it is too large."""
        if course.otherwise is not None:
            # There is no room to better the reply: what was paid is all there will be.
            return course.otherwise, _nothing
        meters = course.lane.scope.meters
        budget = next((m for m in meters if m.key == meter and m.window_s is None), None)
        if budget is not None:
            self._stop(_spent(budget, self._clocks.wall()))
            return self._unsent(course)
        message = f"The request needs {course.tokens} tokens, more than {meter} ever allows; raise the limit."
        final = Final(outcome=Outcome.TOO_LONG, error=ItemError(kind="over_limit", message=message))
        return course.ended(final, None, **self._here(course)), _nothing

    def _waited_too_long(self, course: Course, waits_for: str) -> Ended:
        message = (
            f"It waited {self._policy.max_wait_s:g} s, last for {waits_for}; raise max_wait or the limit."
        )
        final = Final(outcome=Outcome.EXHAUSTED, error=ItemError(kind="max_wait", message=message))
        return course.ended(final, None, **self._here(course)), _nothing

    def _unsent(self, course: Course) -> Ended:
        return course.unsent(str(self._why), **self._here(course)), _nothing

    def _here(self, course: Course) -> dict[str, Any]:
        endpoint = course.lane.attempts.endpoint
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
