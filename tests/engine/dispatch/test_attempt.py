"""One call of one item, with a real limiter, a real connection and a real service."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_llmbatch.engine.dispatch.attempt import Attempts, Endpoint
from airflow_provider_llmbatch.engine.dispatch.call import Caller, Target, open_transport
from airflow_provider_llmbatch.engine.dispatch.course import Course
from airflow_provider_llmbatch.engine.dispatch.limit.limiter import Limiter
from airflow_provider_llmbatch.engine.dispatch.redact import Redactor
from airflow_provider_llmbatch.engine.dispatch.wire import chat
from airflow_provider_llmbatch.engine.exchange import Failure, Reply
from airflow_provider_llmbatch.engine.items import Cost, PromptRef, Request, Result, Usage
from airflow_provider_llmbatch.engine.state.protocols import Scope
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.errors import StoreError
from tests.contracts.states import dollars, requests, scope, tokens
from tests.engine.dispatch.courses import course_of
from tests.engine.rehearsal import simulated

LIMITED = scope(requests(100), tokens(10_000, counts="used"), dollars(100_000), max_in_flight=5)


@dataclass
class Notes:
    """Takes down what is stored; ``before_sent`` happens while a call is about to leave."""

    before_sent: Any = None
    lines: list[tuple[str, int, int]] = field(default_factory=list)
    booked: list[dict[str, Any]] = field(default_factory=list)

    def sent(self, index: int, attempt: int) -> None:
        if self.before_sent is not None:
            self.before_sent()
        self.lines.append(("sent", index, attempt))

    def add(self, result: Result) -> None:
        raise AssertionError("an attempt stores no row")

    def book(self, **call: Any) -> None:
        self.lines.append(("settled", call["index"], call["attempt"]))
        self.booked.append(call)


@asynccontextmanager
async def attempts(
    url: str, state: SqliteState, notes: Notes, of: Scope = LIMITED, slack_s: float = 0.4
) -> AsyncIterator[tuple[Attempts, Limiter]]:
    caller = Caller(open_transport(5), Redactor([]), timeout_s=5.0, connect_timeout_s=1.0)
    headers = {"content-type": "application/json"}
    target = Target(url=f"{url}/chat/completions", headers=headers)
    async with Limiter(state, of, now=time.monotonic) as limiter:
        yield (
            Attempts(
                caller=caller,
                limiter=limiter,
                wire=chat,
                store=notes,
                price=lambda model, usage: Cost(usd=Decimal(usage.total) / 10**6),
                count=len,
                count_messages=len,
                learn=lambda counted, usage: None,
                redactor=Redactor([]),
                endpoint=Endpoint(name=url, credential="k", target=target),
                slack_s=slack_s,
                reserves_money=True,
                now=time.monotonic,
                wall=time.time,
            ),
            limiter,
        )
    await caller.close()


def course(output_tokens: int = 50) -> Course:
    request = Request(
        index=3,
        id="i3",
        model="m",
        messages=[{"role": "user", "content": "hello"}],
        params={"max_tokens": output_tokens},
        prompt=PromptRef(name="p", version="1", sha="0" * 64),
        prompt_tokens=10,
        output_tokens=output_tokens,
    )
    return course_of(request, ready_at=time.monotonic(), started_at=time.time())


@pytest.fixture
async def state() -> AsyncIterator[SqliteState]:
    opened = SqliteState(":memory:")
    yield opened
    await opened.close()


async def used(state: SqliteState) -> tuple[int, ...]:
    """Return what is taken: requests, tokens, micro-dollars."""
    return tuple(level.used for level in await state.levels(LIMITED))


FOREVER = float("inf")


async def test_a_reply_settles_to_what_it_used_and_is_booked_when_told(state: SqliteState):
    notes, way = Notes(), course()
    with simulated(output_words=5) as simulator:
        async with attempts(simulator.url, state, notes) as (made, _):
            tried = await made.once(way, until=FOREVER)
            assert isinstance(tried.seen, Reply)
            assert notes.lines == [("sent", 3, 1)]
            tried.book()
    usage = way.usage
    assert notes.lines == [("sent", 3, 1), ("settled", 3, 1)]
    assert (notes.booked[0]["usage"], notes.booked[0]["status"], notes.booked[0]["maybe_paid"]) == (
        usage,
        200,
        False,
    )
    assert await used(state) == (1, usage.total, usage.total)
    assert (way.calls, way.cost.usd) == (1, Decimal(usage.total) / 10**6)
    assert 0 < way.call_s < 5


async def test_a_request_that_leaves_after_its_slack_is_counted_once_more(state: SqliteState):
    # The disk takes its time between the last look and the write.
    notes = Notes(before_sent=lambda: time.sleep(0.6))
    with simulated(output_words=5) as simulator:
        async with attempts(simulator.url, state, notes) as (made, limiter):
            await made.once(course(), until=FOREVER)
            assert limiter.late_arrivals == 1
        assert len(simulator.arrivals()) == 1
    assert (await used(state))[0] == 2


async def test_a_grant_that_is_too_old_when_the_request_could_leave_is_given_back_and_taken_again(
    state: SqliteState,
):
    given: list[int] = []

    class SlowOnce(SqliteState):
        """A state that is slow to answer its first take, as one on a busy disk is."""

        def _take(self, *arguments: Any) -> Any:
            taken = super()._take(*arguments)
            given.append(len(taken.grants))
            if len(given) == 1:
                time.sleep(0.3)
            return taken

    busy, notes = SlowOnce(":memory:"), Notes()
    with simulated(output_words=5) as simulator:
        async with attempts(simulator.url, busy, notes) as (made, limiter):
            tried = await made.once(course(), until=FOREVER)
            assert isinstance(tried.seen, Reply)
            assert (limiter.granted_requests, limiter.late_arrivals) == (1, 0)
        assert len(simulator.arrivals()) == 1
    assert sum(given) == 2
    assert await used(busy) == (1, tried.seen.usage.total, tried.seen.usage.total)
    assert notes.lines == [("sent", 3, 1)]
    await busy.close()


async def test_without_a_slack_nothing_is_too_old(state: SqliteState):
    notes = Notes(before_sent=lambda: time.sleep(0.1))
    with simulated(output_words=5) as simulator:
        async with attempts(simulator.url, state, notes, slack_s=0.0) as (made, limiter):
            assert isinstance((await made.once(course(), until=FOREVER)).seen, Reply)
            assert limiter.late_arrivals == 0


async def test_a_service_that_cannot_be_reached_costs_nothing(state: SqliteState):
    notes, way = Notes(), course()
    async with attempts("http://127.0.0.1:9/v1", state, notes) as (made, _):
        tried = await made.once(way, until=FOREVER)
    assert isinstance(tried.seen, Failure)
    assert (tried.seen.kind, tried.seen.maybe_paid) == ("connect", False)
    assert notes.lines == []
    assert await used(state) == (0, 0, 0)


async def test_a_call_that_breaks_off_keeps_what_it_reserved(state: SqliteState):
    notes, way = Notes(), course()
    with simulated({"reply": {"reset": "after"}}) as simulator:
        async with attempts(simulator.url, state, notes) as (made, _):
            (await made.once(way, until=FOREVER)).book()
    assert await used(state) == (1, 60, 60)
    assert notes.booked[0]["maybe_paid"]
    assert notes.booked[0]["usage"] is None


async def test_a_refusal_of_the_service_gives_tokens_and_money_back_but_not_the_request(state: SqliteState):
    with simulated({"reply": {"status": 400, "error": {"message": "no"}}}) as simulator:
        async with attempts(simulator.url, state, Notes()) as (made, _):
            await made.once(course(), until=FOREVER)
    assert await used(state) == (1, 0, 0)


async def test_a_store_that_fails_before_a_call_keeps_it_from_leaving(state: SqliteState):
    def full() -> None:
        raise StoreError("no space left")

    with simulated() as simulator:
        async with attempts(simulator.url, state, Notes(before_sent=full)) as (made, _):
            with pytest.raises(StoreError, match="no space left"):
                await made.once(course(), until=FOREVER)
        assert simulator.arrivals() == []
    assert await used(state) == (0, 0, 0)


async def test_usage_that_a_service_leaves_out_is_estimated(state: SqliteState):
    """P36."""
    way = course()
    with simulated({"reply": {"usage": "missing", "content": "twelve chars"}}) as simulator:
        async with attempts(simulator.url, state, Notes()) as (made, _):
            await made.once(way, until=FOREVER)
    assert way.usage == Usage(prompt=10, completion=12, estimated=True)
    assert await used(state) == (1, 22, 22)


async def test_a_long_reply_without_usage_is_not_counted_to_its_end(state: SqliteState):
    way = course()
    said = "x" * 250_001
    with simulated({"reply": {"usage": "missing", "content": said}}) as simulator:
        async with attempts(simulator.url, state, Notes()) as (made, _):
            await made.once(way, until=FOREVER)
    assert way.usage == Usage(prompt=10, completion=250_001, estimated=True)
