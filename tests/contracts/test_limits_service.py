"""What every implementation of the shared limits makes of what the service says: no, and its headers."""

from __future__ import annotations

from airflow_provider_llmbatch.engine.state.protocols import Told
from tests.contracts.states import (
    SLACK_S,
    WINDOW_S,
    Store,
    another,
    needs,
    requests,
    scope,
    take,
    tokens,
    used,
)


class TestThrottling:
    async def test_one_no_holds_everybody_back_who_shares_it(self, store: Store):
        mine, other = scope(requests(100), owner="one"), scope(requests(100), owner="two")
        elsewhere = scope(requests(100, key="b/requests"), throttle="b/m", owner="three")
        await store.state.throttle(mine, 0.5)
        held = await take(store, other, 1)
        assert (held.grants, held.waits_for) == ((), "throttle")
        assert 0 < held.wait_s <= 0.5
        assert len((await take(store, elsewhere, 1)).grants) == 1
        await store.pass_time(held.wait_s + 0.001)
        assert len((await take(store, other, 1)).grants) == 1

    async def test_a_shorter_pause_never_cuts_a_longer_one(self, store: Store):
        limited = scope(requests(100))
        await store.state.throttle(limited, 0.5)
        await store.state.throttle(limited, 0.1)
        assert (await take(store, limited, 1)).wait_s > 0.3

    async def test_the_factor_falls_with_each_pause_and_recovers_with_time(self, store: Store):
        limited = scope(requests(1000))

        async def factor() -> float:
            return (await store.state.levels(limited))[0].factor

        assert await factor() == 1.0
        await store.state.throttle(limited, 0.1)
        # Calls that were open together bring one "no", not many.
        await store.state.throttle(limited, 0.1)
        # Hardly anything was taken: others use the limit as well, and what was refused is not known.
        assert 0.48 <= await factor() <= 0.6
        await store.pass_time(0.15)
        await store.state.throttle(limited, 0.1)
        fallen = await factor()
        assert 0.2 <= fallen <= 0.35
        await store.pass_time(1.0)
        assert await factor() > fallen + 0.05
        await store.pass_time(4 * WINDOW_S)
        assert await factor() > 0.9

    async def test_the_factor_settles_below_what_was_refused(self, store: Store):
        limited = scope(requests(1000))
        await take(store, limited, 850)
        await store.state.throttle(limited, 0.01)
        # 85 % were in use when it was too much.
        assert 0.59 <= (await store.state.levels(limited))[0].factor <= 0.7
        await store.pass_time(2 * WINDOW_S)
        assert 0.8 <= (await store.state.levels(limited))[0].factor <= 0.88

    async def test_a_lowered_factor_grants_less(self, store: Store):
        limited = scope(requests(100))
        await store.state.throttle(limited, 0.05)
        await store.pass_time(0.06)
        assert 48 <= len((await take(store, limited, 100)).grants) <= 60


class TestWhatTheServiceTells:
    async def test_a_limit_lower_than_configured_is_kept_until_the_service_takes_it_back(self, store: Store):
        limited = scope(requests(100), tokens(10_000))
        lower, back = Told(unit="requests", limit=40), Told(unit="requests", limit=100)
        assert len((await store.state.take(limited, needs(60), told=[lower])).grants) == 40
        assert len((await another(store).take(limited, needs(60))).grants) == 0, "others know it as well"
        assert len((await store.state.take(limited, needs(80), told=[back])).grants) == 60

    async def test_a_limit_that_was_told_long_ago_is_not_believed_any_more(self, store: Store):
        limited = scope(requests(100))
        await store.state.take(limited, (), told=[Told(unit="requests", limit=40)])
        await store.pass_time(2 * WINDOW_S + 0.1)
        assert len((await take(store, limited, 100)).grants) == 100

    async def test_a_limit_higher_than_configured_changes_nothing(self, store: Store):
        told = [Told(unit="requests", limit=1000, remaining=990)]
        assert len((await store.state.take(scope(requests(100)), needs(200), told=told)).grants) == 100

    async def test_what_others_have_taken_at_the_service_is_not_taken_again(self, store: Store):
        limited = scope(requests(100), tokens(1000))
        told = [Told(unit="requests", remaining=70), Told(unit="tokens", limit=900, remaining=300)]
        assert len((await store.state.take(limited, needs(50), told=told)).grants) == 30
        assert await used(store, limited) == {"a/requests": 60, "a/tokens": 900}
        await store.pass_time(WINDOW_S + 2 * SLACK_S)
        assert len((await take(store, limited, 20)).grants) == 20

    async def test_more_left_than_we_think_gives_nothing_back(self, store: Store):
        limited = scope(requests(100))
        await take(store, limited, 90)
        told = [Told(unit="requests", limit=100, remaining=95)]
        assert len((await store.state.take(limited, needs(50), told=told)).grants) == 10

    async def test_it_is_about_the_shortest_window_of_the_unit(self, store: Store):
        day = requests(100, key="a/requests_per_day", window_s=60 * WINDOW_S)
        limited = scope(day, requests(50))
        await store.state.take(limited, (), told=[Told(unit="requests", limit=50, remaining=20)])
        assert await used(store, limited) == {"a/requests_per_day": 0, "a/requests": 30}
