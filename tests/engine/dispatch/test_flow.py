"""Slots, their number, and when it is pointless to go on."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.dispatch.fail_fast import FailFast
from airflow_provider_llmbatch.engine.dispatch.limit.concurrency import FIRST_GUESS_S, Pace, concurrency
from airflow_provider_llmbatch.engine.dispatch.slots import Slots
from airflow_provider_llmbatch.engine.items import ItemError, Outcome, Result
from airflow_provider_llmbatch.engine.state.protocols import Meter


class TestSlots:
    async def hold(self, slots: Slots, log: list[int], number: int, release: asyncio.Event) -> None:
        async with slots.one():
            log.append(number)
            await release.wait()

    async def test_no_more_are_held_than_there_are_and_who_came_first_goes_first(self):
        slots, log, release = Slots(2), [], asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(self.hold(slots, log, number, release))
            await asyncio.sleep(0)
            assert (log, slots.held) == ([0, 1], 2)
            release.set()
        assert (log, slots.held) == ([0, 1, 2, 3, 4], 0)

    async def test_more_room_lets_more_in_and_less_room_takes_nothing_away(self):
        slots, log, release = Slots(1), [], asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(self.hold(slots, log, number, release))
            await asyncio.sleep(0)
            slots.resize(3)
            await asyncio.sleep(0)
            assert slots.held == 3
            slots.resize(1)
            assert slots.held == 3
            release.set()
        assert slots.held == 0

    async def test_a_waiter_that_is_cancelled_leaves_no_slot_behind(self):
        slots, log, release = Slots(1), [], asyncio.Event()
        first = asyncio.create_task(self.hold(slots, log, 0, release))
        waiting = [asyncio.create_task(self.hold(slots, log, n, release)) for n in (1, 2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        release.set()
        await asyncio.gather(first, *waiting, return_exceptions=True)
        assert (log, slots.held) == ([0, 2], 0)

    async def test_one_cancelled_in_the_moment_of_its_turn_passes_the_slot_on(self):
        slots, log, release = Slots(1), [], asyncio.Event()
        release.set()
        blocker = slots.one()
        await blocker.__aenter__()
        waiting = [asyncio.create_task(self.hold(slots, log, n, release)) for n in (1, 2)]
        await asyncio.sleep(0)
        await blocker.__aexit__(None, None, None)
        waiting[0].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (log, slots.held) == ([2], 0)


def meter(unit: str, capacity: int, window_s: float | None = 60.0) -> Meter:
    return Meter(key=unit, unit=unit, capacity=capacity, window_s=window_s, slack_s=0.0)  # type: ignore[arg-type]


class TestConcurrency:
    def test_it_is_the_rate_times_the_latency_and_a_fifth(self):
        assert concurrency([meter("requests", 6025)], 1.0, 2.0, 1000) == 240

    def test_the_tighter_of_requests_and_tokens_decides(self):
        meters = [meter("requests", 6025), meter("tokens", 602_500)]
        assert concurrency(meters, 1000.0, 2.0, 1000) == 24

    def test_without_limits_it_is_the_most_and_budgets_limit_no_flow(self):
        assert concurrency([meter("micro_usd", 1, None)], 1.0, 2.0, 77) == 77

    @given(st.integers(1, 10**9), st.floats(1, 1e6), st.floats(0, 1e4), st.integers(1, 5000))
    def test_it_is_at_least_one_and_never_more_than_the_most(self, capacity, tokens, p95, most):
        assert 1 <= concurrency([meter("tokens", capacity)], tokens, p95, most) <= most

    def test_a_call_that_hangs_counts_as_long_as_it_does(self):
        pace = Pace()
        assert pace.p95(0.0) == FIRST_GUESS_S
        for _ in range(100):
            pace.over(0.5)
        assert pace.p95(0.0) == 0.5
        assert pace.p95(60.0) == 60.0

    def test_old_calls_are_forgotten(self):
        pace = Pace()
        for seconds in [9.0] * 300 + [0.1] * 300:
            pace.over(seconds)
        assert pace.p95(0.0) == 0.1


def ended(outcome: Outcome, kind: str = "http", code: str | None = "c") -> Result:
    error = None if outcome is Outcome.OK else ItemError(kind=kind, message="no", code=code)
    return Result(index=0, id="i", outcome=outcome, error=error)


class TestFailFast:
    def reasons(self, watch: FailFast, *results: Result) -> list[str | None]:
        return [watch.reason(result) for result in results]

    def test_it_stops_when_the_first_items_all_fail_in_one_way(self):
        reasons = self.reasons(FailFast(3), *[ended(Outcome.BAD_REQUEST)] * 3)
        assert reasons[:2] == [None, None]
        assert "first 3 finished items all ended bad_request" in str(reasons[2])
        assert "fail_fast=0" in str(reasons[2])

    @pytest.mark.parametrize(
        "other",
        [
            ended(Outcome.OK),
            ended(Outcome.EXHAUSTED),
            ended(Outcome.BAD_REQUEST, code="other"),
            ended(Outcome.REFUSED, kind="refusal"),
        ],
    )
    def test_it_never_stops_once_an_item_ended_otherwise(self, other: Result):
        bad = ended(Outcome.BAD_REQUEST)
        assert set(self.reasons(FailFast(3), bad, other, *[bad] * 9)) == {None}

    def test_items_that_were_never_sent_say_nothing(self):
        bad, unsent = ended(Outcome.BAD_REQUEST), ended(Outcome.UNSENT)
        assert self.reasons(FailFast(2), bad, unsent, bad)[-1] is not None

    def test_zero_never_stops(self):
        assert set(self.reasons(FailFast(0), *[ended(Outcome.BAD_REQUEST)] * 50)) == {None}
