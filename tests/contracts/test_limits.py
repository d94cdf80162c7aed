"""What every implementation of the shared limits does."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_provider_llmbatch.engine.state.protocols import Grant, Need, Settlement, State
from airflow_provider_llmbatch.engine.state.sqlite import SqliteState
from airflow_provider_llmbatch.errors import StaleFenceError
from tests.contracts.states import (
    SLACK_S,
    WINDOW_S,
    ManualClock,
    Store,
    another,
    dollars,
    needs,
    requests,
    scope,
    take,
    tokens,
    used,
)


class TestTaking:
    async def test_concurrent_takes_get_exactly_the_limit(self, store: Store):
        limited = scope(tokens(1000))
        takes = await asyncio.gather(*(take(store, limited, 1, tokens=200) for _ in range(50)))
        assert sum(len(taken.grants) for taken in takes) == 5
        assert len({grant.id for taken in takes for grant in taken.grants}) == 5
        refused = [taken for taken in takes if not taken.grants]
        assert all(taken.wait_s > 0 and not taken.refused for taken in refused)

    async def test_threads_with_handles_of_their_own_get_exactly_the_limit(self, store: Store):
        limited, grants = scope(requests(37)), []

        def work(state: State, number: int) -> None:
            mine = scope(requests(37), owner=f"task/{number}")

            async def take_ten() -> None:
                for _ in range(10):
                    grants.extend((await state.take(mine, needs(1))).grants)
                if store.reopen is not None:
                    await state.close()

            asyncio.run(take_ten())

        threads = [threading.Thread(target=work, args=(another(store), n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert len(grants) == 37
        assert await used(store, limited) == {"a/requests": 37}

    async def test_a_take_moves_requests_tokens_calls_and_money_or_none_of_them(self, store: Store):
        limited = scope(requests(100), tokens(1000), dollars(50), max_in_flight=100)
        taken = await take(store, limited, 10, tokens=10, micro_usd=20)
        assert len(taken.grants) == 2
        assert await used(store, limited) == {"a/requests": 2, "a/tokens": 20, "budget/dag/run/task": 40}

    async def test_grants_come_in_order_up_to_the_first_that_does_not_fit(self, store: Store):
        sizes = [300, 400, 500, 1]
        taken = await store.state.take(scope(tokens(1000)), [Need(tokens=size) for size in sizes])
        assert [grant.need.tokens for grant in taken.grants] == [300, 400]
        assert taken.waits_for == "a/tokens"

    async def test_a_window_is_free_again_after_window_and_slack_and_not_before(self, store: Store):
        limited = scope(requests(3))
        assert len((await take(store, limited, 5)).grants) == 3
        await store.pass_time(WINDOW_S + SLACK_S / 2)
        early = await take(store, limited, 5)
        assert early.grants == ()
        await store.pass_time(early.wait_s + 0.001)
        assert len((await take(store, limited, 3)).grants) == 3

    async def test_what_is_larger_than_a_limit_is_refused_at_once(self, store: Store):
        taken = await take(store, scope(tokens(1000)), 1, tokens=1001)
        assert taken.refused
        assert (taken.grants, taken.waits_for) == ((), "a/tokens")

    async def test_a_bucket_spreads_what_a_window_allows(self, store: Store):
        limited = scope(requests(60, burst_s=0.1))
        first = await take(store, limited, 60)
        assert 5 <= len(first.grants) <= 6
        assert 0 < first.wait_s < 0.1
        await store.pass_time(0.25)
        # Six a tenth of a second: the bucket holds no more, however long the pause was.
        assert 5 <= len((await take(store, limited, 60)).grants) <= 7

    async def test_a_need_larger_than_the_bucket_passes_when_the_bucket_is_full(self, store: Store):
        limited = scope(tokens(1000, burst_s=0.05))
        assert len((await take(store, limited, 1, tokens=350)).grants) == 1
        later = await take(store, limited, 1, tokens=350)
        assert later.grants == ()
        assert not later.refused
        assert later.wait_s < WINDOW_S

    async def test_calls_in_flight_are_counted_over_all_owners(self, store: Store):
        one, two = scope(max_in_flight=3, owner="one"), scope(max_in_flight=3, owner="two")
        mine = await take(store, one, 2)
        theirs = await take(store, two, 2)
        assert (len(mine.grants), len(theirs.grants), theirs.waits_for) == (2, 1, "in_flight")
        await take(store, one, 0, [Settlement(grant=mine.grants[0], tokens=1)])
        assert len((await take(store, two, 2)).grants) == 1

    async def test_calls_in_flight_of_one_model_do_not_hold_up_another(self, store: Store):
        slow = scope(requests(100), throttle="a/slow", queue="a/all", max_in_flight=1, owner="one")
        fast = scope(requests(100), throttle="a/fast", queue="a/all", max_in_flight=9, owner="two")
        assert (await take(store, slow, 2)).waits_for == "in_flight"
        assert len((await take(store, fast, 5)).grants) == 5


class TestTurns:
    async def test_a_large_need_is_not_starved_by_small_ones(self, store: Store):
        large, small = scope(tokens(1000), owner="large"), scope(tokens(1000), owner="small")
        assert len((await take(store, small, 90)).grants) == 90
        assert (await take(store, large, 1, tokens=800)).waits_for == "a/tokens"
        assert (await take(store, small, 90)).waits_for == "turn"
        await store.pass_time(WINDOW_S + 2 * SLACK_S)
        assert (await take(store, small, 90)).grants == ()
        assert len((await take(store, large, 1, tokens=800)).grants) == 1
        assert len((await take(store, small, 90)).grants) == 20

    async def test_a_head_that_never_comes_back_is_passed(self, store: Store):
        dead, alive = scope(requests(2), owner="dead"), scope(requests(2), owner="alive")
        await take(store, alive, 2)
        await take(store, dead, 1)
        await store.pass_time(WINDOW_S + 2.2)
        assert (await take(store, alive, 1)).waits_for in ("turn", "")
        await store.pass_time(WINDOW_S)
        assert len((await take(store, alive, 1)).grants) == 1

    async def test_the_urgent_take_before_those_who_have_waited_longer(self, store: Store):
        urgent, low = (
            scope(requests(2), owner="urgent", priority=0),
            scope(requests(2), owner="low", priority=1),
        )
        await take(store, urgent, 2)
        assert (await take(store, low, 1)).waits_for == "a/requests"
        assert (await take(store, urgent, 1)).grants == ()
        await store.pass_time(WINDOW_S + 2 * SLACK_S)
        assert (await take(store, low, 1)).waits_for == "turn"
        assert len((await take(store, urgent, 1)).grants) == 1
        assert len((await take(store, low, 1)).grants) == 1

    @pytest.mark.alone
    async def test_who_took_all_there_was_is_passed_until_the_others_have_had_as_much(self, store: Store):
        one, two = (scope(requests(60, burst_s=0.5), owner=name) for name in ("one", "two"))
        had = {"one": len((await take(store, one, 60)).grants), "two": 0}
        assert had["one"] >= 25
        for _ in range(20):
            for each in (one, two):
                had[each.owner] += len((await take(store, each, 60)).grants)
            await store.pass_time(0.1)
        assert sum(had.values()) >= 110
        assert max(had.values()) <= 1.2 * min(had.values())

    async def test_half_of_a_windows_tokens_are_served_within_two_windows(self, store: Store):
        small = [scope(tokens(1000, burst_s=0.1), owner=f"small{n}") for n in range(8)]
        large = scope(tokens(1000, burst_s=0.1), owner="large")
        # Before the others came it took all that there was.
        assert len((await take(store, large, 100)).grants) >= 9
        waited_s = 0.0
        while not (await take(store, large, 1, tokens=500)).grants:
            assert waited_s <= 2 * WINDOW_S
            for each in small:
                await take(store, each, 8)
            await store.pass_time(0.05)
            waited_s += 0.05

    async def test_who_waits_for_nothing_more_holds_nobody_up(self, store: Store):
        one, two = scope(requests(2), owner="one"), scope(requests(2), owner="two")
        await take(store, one, 3)
        await take(store, one, 0)
        await store.pass_time(WINDOW_S + 2 * SLACK_S)
        assert len((await take(store, two, 2)).grants) == 2


class TestSettling:
    async def one(self, store: Store, limited, **need: int) -> Grant:
        return (await take(store, limited, 1, **need)).grants[0]

    async def test_where_reservations_count_settling_only_raises(self, store: Store):
        limited = scope(tokens(1000, counts="reserved"))
        low, high = await self.one(store, limited, tokens=100), await self.one(store, limited, tokens=100)
        await take(store, limited, 0, [Settlement(grant=low, tokens=10)])
        assert await used(store, limited) == {"a/tokens": 200}
        await take(store, limited, 0, [Settlement(grant=high, tokens=150)])
        assert await used(store, limited) == {"a/tokens": 250}

    async def test_where_use_counts_settling_moves_both_ways(self, store: Store):
        limited = scope(requests(10), tokens(1000, counts="used"))
        low, high = await self.one(store, limited, tokens=100), await self.one(store, limited, tokens=100)
        await take(store, limited, 0, [Settlement(grant=low, tokens=10)])
        assert await used(store, limited) == {"a/requests": 2, "a/tokens": 110}
        await take(store, limited, 0, [Settlement(grant=high, tokens=150)])
        assert await used(store, limited) == {"a/requests": 2, "a/tokens": 160}

    async def test_what_nobody_knows_keeps_its_reservation(self, store: Store):
        limited = scope(tokens(1000, counts="used"), dollars(100))
        grant = await self.one(store, limited, tokens=100, micro_usd=30)
        await take(store, limited, 0, [Settlement(grant=grant)])
        assert await used(store, limited) == {"a/tokens": 100, "budget/dag/run/task": 30}

    async def test_a_request_that_never_left_gives_everything_back(self, store: Store):
        limited = scope(requests(1), tokens(100), dollars(30), max_in_flight=1)
        grant = await self.one(store, limited, tokens=100, micro_usd=30)
        again = await take(store, limited, 1, [Settlement(grant=grant, sent=False)], tokens=100, micro_usd=30)
        assert len(again.grants) == 1

    async def test_a_request_that_left_late_counts_once_more_from_then_on(self, store: Store):
        limited = scope(requests(2), dollars(100), max_in_flight=2)
        grant = await self.one(store, limited, micro_usd=30)
        await store.pass_time(WINDOW_S / 2)
        await take(store, limited, 0, [Settlement(grant=grant, late=True)])
        assert await used(store, limited) == {"a/requests": 2, "budget/dag/run/task": 30}
        await store.pass_time(WINDOW_S / 2 + 2 * SLACK_S)
        assert await used(store, limited) == {"a/requests": 1, "budget/dag/run/task": 30}
        # The call is still open, and settled like any other.
        taken = await take(store, limited, 2)
        assert len(taken.grants) == 1
        settled = [Settlement(grant=grant, tokens=1, micro_usd=7), Settlement(grant=taken.grants[0])]
        await take(store, limited, 0, settled)
        assert (await used(store, limited))["budget/dag/run/task"] == 7


class TestBudgets:
    async def test_money_settles_to_what_was_used(self, store: Store):
        limited = scope(dollars(100))
        grants = (await take(store, limited, 3, micro_usd=30)).grants
        settled = [Settlement(grant=grant, tokens=1, micro_usd=5) for grant in grants]
        await take(store, limited, 0, settled)
        assert await used(store, limited) == {"budget/dag/run/task": 15}

    async def test_calls_that_are_open_may_leave_room_so_a_budget_waits_for_them(self, store: Store):
        limited = scope(dollars(100))
        first = await take(store, limited, 9, micro_usd=30)
        assert len(first.grants) == 3
        assert (first.waits_for, first.refused) == ("budget/dag/run/task", False)
        assert first.wait_s > 0
        settled = [Settlement(grant=grant, tokens=1, micro_usd=5) for grant in first.grants]
        assert len((await take(store, limited, 2, settled, micro_usd=30)).grants) == 2

    async def test_a_spent_budget_refuses(self, store: Store):
        limited = scope(dollars(100))
        grants = (await take(store, limited, 3, micro_usd=30)).grants
        settled = [Settlement(grant=grant, tokens=1, micro_usd=30) for grant in grants]
        taken = await take(store, limited, 1, settled, micro_usd=30)
        assert (taken.grants, taken.refused, taken.waits_for) == ((), True, "budget/dag/run/task")

    async def test_leases_that_ran_out_leave_no_room(self, store: Store):
        limited = scope(dollars(100), lease_s=0.5)
        assert len((await take(store, limited, 3, micro_usd=30)).grants) == 3
        await store.pass_time(0.6)
        assert (await take(store, limited, 1, micro_usd=30)).refused

    async def test_a_rebuild_sets_what_is_missing_and_lowers_nothing(self, store: Store):
        limited = scope(dollars(100))
        await store.state.rebuild(limited, {"budget/dag/run/task": 40})
        assert await used(store, limited) == {"budget/dag/run/task": 40}
        await take(store, limited, 1, micro_usd=30)
        # Another chunk starts while the call is open, and its ledger does not know of it.
        await another(store).rebuild(limited, {"budget/dag/run/task": 40})
        assert await used(store, limited) == {"budget/dag/run/task": 70}
        await another(store).rebuild(limited, {"budget/dag/run/task": 90})
        assert await used(store, limited) == {"budget/dag/run/task": 90}


class TestFences:
    async def test_every_start_gets_a_higher_number(self, store: Store):
        assert await store.state.next("task") == 1
        assert await another(store).next("task") == 2
        assert await store.state.next("task", at_least=9) == 9
        assert await store.state.next("other") == 1

    async def test_a_stale_try_gets_nothing_more_but_its_settlements_count(self, store: Store):
        fence = await store.state.next("task")
        old = scope(tokens(1000, counts="used"), dollars(100), owner="task", fence=fence)
        grant = (await take(store, old, 1, tokens=100, micro_usd=30)).grants[0]
        new = scope(
            tokens(1000, counts="used"), dollars(100), owner="task", fence=await store.state.next("task")
        )
        with pytest.raises(StaleFenceError):
            await take(store, old, 1, [Settlement(grant=grant, tokens=40, micro_usd=7)])
        assert await used(store, new) == {"a/tokens": 40, "budget/dag/run/task": 7}
        assert len((await take(store, new, 1)).grants) == 1

    async def test_a_new_fence_frees_the_calls_of_older_tries(self, store: Store):
        old = scope(max_in_flight=2, owner="task", fence=await store.state.next("task"))
        other = scope(max_in_flight=2, owner="other")
        assert len((await take(store, old, 1)).grants) == 1
        assert len((await take(store, other, 2)).grants) == 1
        new = scope(max_in_flight=2, owner="task", fence=await store.state.next("task"))
        assert len((await take(store, new, 2)).grants) == 1

    async def test_a_stale_try_holds_nobody_up(self, store: Store):
        old = scope(requests(1), owner="task", fence=await store.state.next("task"))
        await take(store, old, 2)
        new = scope(requests(1), owner="task", fence=await store.state.next("task"))
        with pytest.raises(StaleFenceError):
            await take(store, old, 1)
        await store.pass_time(WINDOW_S + 2 * SLACK_S)
        assert len((await take(store, new, 1)).grants) == 1

    async def test_a_lease_without_a_sign_of_life_runs_out(self, store: Store):
        limited = scope(max_in_flight=1, lease_s=0.5)
        assert len((await take(store, limited, 1)).grants) == 1
        assert (await take(store, limited, 1)).waits_for == "in_flight"
        await store.pass_time(0.6)
        assert len((await take(store, limited, 1)).grants) == 1


class TestPeriods:
    async def test_a_budget_of_a_day_begins_anew_at_midnight_utc_and_one_of_a_run_does_not(
        self, tmp_path: Path
    ):
        clock = ManualClock()
        clock.now = datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC).timestamp()
        state = SqliteState(":memory:", now=clock)
        day, run = replace(dollars(100), key="budget/day", period="day"), dollars(1000)
        limited = scope(day, run)
        assert len((await state.take(limited, needs(9, micro_usd=30))).grants) == 3
        await clock.move(2.0)
        assert len((await state.take(limited, needs(9, micro_usd=30))).grants) == 3
        assert {level.key: level.used for level in await state.levels(limited)} == {
            "budget/day": 90,
            "budget/dag/run/task": 180,
        }
        await state.close()

    def test_a_month_has_a_key_of_its_own(self):
        month = replace(dollars(1), key="b", period="month")
        assert month.key_at(datetime(2026, 2, 28, 23, 59, tzinfo=UTC).timestamp()) == "b/2026-02"
        assert month.key_at(datetime(2026, 3, 1, 0, 0, tzinfo=UTC).timestamp()) == "b/2026-03"

    async def test_a_budget_of_tokens_settles_to_what_was_used(self, store: Store):
        limited = scope(replace(dollars(100), unit="tokens", counts="used"))
        grants = (await take(store, limited, 3, tokens=30)).grants
        settled = [Settlement(grant=grant, tokens=10) for grant in grants]
        assert len((await take(store, limited, 9, settled, tokens=30)).grants) == 2
