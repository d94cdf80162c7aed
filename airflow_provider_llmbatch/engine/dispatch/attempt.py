"""
One call of one item: grant, send, settle.

The connection slot is held before the grant is taken, and the grant's age is looked at when the
connection is ready and the write comes next: a grant that has used up its part of the arrival slack is
given back and taken again. The age at the write itself is looked at as well; when the process was held
up in between, the grant is counted once more, from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.dispatch.call import Answer, Caller, Target
from airflow_provider_llmbatch.engine.dispatch.course import Course
from airflow_provider_llmbatch.engine.dispatch.limit.headers import read
from airflow_provider_llmbatch.engine.dispatch.limit.limiter import Granted, Limiter
from airflow_provider_llmbatch.engine.dispatch.ports import (
    CountMessages,
    CountTokens,
    Learn,
    Price,
    Store,
    Wire,
)
from airflow_provider_llmbatch.engine.dispatch.redact import Redactor
from airflow_provider_llmbatch.engine.exchange import Failure, Reply
from airflow_provider_llmbatch.engine.items import Cost, Message, Usage
from airflow_provider_llmbatch.engine.state.protocols import Need, Settlement

#: Micro-dollars in a dollar.
MICRO = 1_000_000
#: Share of the arrival slack that may be gone before the write; the rest is for the way to the service.
SLACK_BEFORE_WRITE = 0.5
#: Characters of a reply without usage whose tokens are counted; the rest is taken to be alike.
COUNTED_AT_MOST = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where calls go, and as whom."""

    #: what people may see of the address
    name: str
    #: id of the credential
    credential: str
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a call brought."""

    seen: Reply | Failure
    headers: Mapping[str, str]
    #: state time of the call's grant
    granted_at: float
    #: writes the ledger line; called after the row, where there is one
    book: Callable[[], None]


class _GrantTooOldError(Exception):
    """The grant may arrive after its time."""


class Attempts:
    """
    Makes calls, one at a time per item.

    :param caller: sends bytes.
    :param limiter: gives grants.
    :param wire: format of the API.
    :param store: takes the ledger's lines.
    :param price: money of a usage.
    :param count: tokens of a text, for replies that do not say.
    :param count_messages: tokens of a conversation.
    :param learn: is told what a request was counted at, and what its reply used.
    :param redactor: takes secrets out of decoded texts.
    :param endpoint: where calls go.
    :param slack_s: seconds a request may arrive after its grant; 0 does not look.
    :param reserves_money: whether a budget is kept, so that each call reserves its worst case.
    :param now: the process's clock, and ``wall`` Unix seconds.
    """

    def __init__(
        self,
        *,
        caller: Caller,
        limiter: Limiter,
        wire: Wire,
        store: Store,
        price: Price,
        count: CountTokens,
        count_messages: CountMessages,
        learn: Learn,
        redactor: Redactor,
        endpoint: Endpoint,
        slack_s: float,
        reserves_money: bool,
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._caller = caller
        self._limiter = limiter
        self._wire = wire
        self._store = store
        self._price = price
        self._count = count
        self._count_messages = count_messages
        self._learn = learn
        self._redactor = redactor
        self._slack_s = slack_s
        self._reserves_money = reserves_money
        self._now = now
        self._wall = wall
        self.endpoint = endpoint
        #: when each open call left, by item
        self.open: dict[int, float] = {}

    def more_tokens(self, before: Sequence[Message], after: Sequence[Message]) -> int:
        """Return the input tokens that a longer conversation adds."""
        return self._count_messages(after) - self._count_messages(before)

    async def once(self, course: Course, *, until: float) -> Tried:
        """
        Make one call; a slot must be held.

        :param until: when to give up waiting for a grant.
        :raises LimitRefusedError: when no grant will ever come.
        :raises WaitedTooLongError: when none came in time.
        :raises LLMBatchError: when state or storage fails.
        """
        need = Need(tokens=course.tokens, micro_usd=self._worst(course) if self._reserves_money else 0)
        while True:
            granted = await self._limiter.acquire(need, until=until)
            # Put together only now: others may have learnt meanwhile what the service does not take.
            course.follow()
            body = self._wire.encode(course.request.model, course.messages, course.params)
            with contextlib.suppress(_GrantTooOldError):
                return await self._send(course, granted, body)

    async def _send(self, course: Course, granted: Granted, body: bytes) -> Tried:
        left_at: float | None = None

        def on_write() -> None:
            nonlocal left_at
            now = self._now()
            if self._slack_s and now - granted.taken_at > self._slack_s * SLACK_BEFORE_WRITE:
                raise _GrantTooOldError
            self._store.sent(course.request.index, course.calls + 1)
            left_at = self.open[course.request.index] = now
            # The transport's write is the very next thing this loop does.
            asyncio.get_running_loop().call_soon(self._look_at_age, granted)

        try:
            came = await self._caller.post(self.endpoint.target, body, on_write)
        except BaseException:
            self._give_up(granted, left_at)
            raise
        finally:
            self.open.pop(course.request.index, None)
        course.was_called(0.0 if left_at is None else self._now() - left_at)
        seen = self._wire.decode(came.status, came.headers, came.body) if isinstance(came, Answer) else came
        headers = came.headers if isinstance(came, Answer) else {}
        if left_at is not None:
            self._limiter.hear(read(headers), left_at)
        seen = self._redactor.seen(seen)
        usage = self._usage(course, seen)
        cost = Cost() if usage is None else self._price(course.request.model, usage)
        self._settle(granted, seen, usage, cost)
        if usage is not None:
            if not usage.estimated:
                self._learn(course.prompt_tokens, usage)
            course.usage += usage
            course.cost += cost
        book = self._booking(course, seen, usage, cost)
        return Tried(seen=seen, headers=headers, granted_at=granted.grant.at, book=book)

    def _give_up(self, granted: Granted, left_at: float | None) -> None:
        """Settle a call that was called off."""
        if left_at is None:
            self._limiter.give_back(granted)
        else:
            self._limiter.settle(Settlement(grant=granted.grant))

    def _look_at_age(self, granted: Granted) -> None:
        if self._slack_s and self._now() - granted.taken_at > self._slack_s:
            self._limiter.late(granted)

    def _booking(
        self, course: Course, seen: Reply | Failure, usage: Usage | None, cost: Cost
    ) -> Callable[[], None]:
        attempt, at = course.calls, self._wall()
        served = seen.model if isinstance(seen, Reply) else None

        def book() -> None:
            self._store.book(
                index=course.request.index,
                attempt=attempt,
                credential=self.endpoint.credential,
                endpoint=self.endpoint.name,
                model=course.request.model,
                status=200 if isinstance(seen, Reply) else seen.status,
                usage=usage,
                cost=cost,
                maybe_paid=isinstance(seen, Failure) and seen.maybe_paid,
                at=at,
                served_model=served or "",
                prompt=str(course.request.prompt),
            )

        return book

    def _settle(self, granted: Granted, seen: Reply | Failure, usage: Usage | None, cost: Cost) -> None:
        if usage is not None:
            micro_usd = math.ceil(cost.usd * MICRO)
            settlement = Settlement(grant=granted.grant, tokens=usage.total, micro_usd=micro_usd)
        elif isinstance(seen, Failure) and seen.kind == "connect":
            settlement = Settlement(grant=granted.grant, sent=False)
        elif isinstance(seen, Failure) and seen.maybe_paid:
            settlement = Settlement(grant=granted.grant)
        else:
            settlement = Settlement(grant=granted.grant, tokens=0, micro_usd=0)
        self._limiter.settle(settlement)

    def _usage(self, course: Course, seen: Reply | Failure) -> Usage | None:
        if isinstance(seen, Failure):
            return None
        if seen.usage is not None:
            return seen.usage
        said = f"{seen.reasoning or ''}{seen.text or ''}{seen.refusal or ''}"
        # Counting a text of megabytes would hold up every other call; this is an estimate in any case.
        counted = self._count(said[:COUNTED_AT_MOST])
        completion = math.ceil(counted * max(1.0, len(said) / COUNTED_AT_MOST))
        return Usage(prompt=course.prompt_tokens, completion=completion, estimated=True)

    def _worst(self, course: Course) -> int:
        usage = Usage(prompt=course.prompt_tokens, completion=course.output_tokens)
        return math.ceil(self._price(course.request.model, usage).usd * MICRO)
