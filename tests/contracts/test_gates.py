"""What every implementation of the shared health and latencies does."""

from __future__ import annotations

import asyncio

from airflow_provider_llmbatch.engine.state.protocols import Gate, Scope, Seen, Settlement, Taken
from tests.contracts.states import Store, another, needs, requests, scope

PROBE_S, OVER_S = 0.6, 0.3


def endpoint(**further: object) -> Gate:
    usual = {"name": "endpoint/a/m", "failures": 3, "over_s": OVER_S, "probe_s": PROBE_S}
    return Gate(**{**usual, **further})  # type: ignore[arg-type]


def key(**further: object) -> Gate:
    return Gate(**{"name": "credential/k", "probe_s": PROBE_S, **further})  # type: ignore[arg-type]


def through(*gates: Gate, **further: object) -> Scope:
    return scope(requests(10_000), gates=gates, **further)


async def ask(store: Store, of: Scope, *seen: Seen, count: int = 5, settled=()) -> Taken:
    return await store.state.take(of, needs(count), settled, (), seen)


def failed(*items: str) -> Seen:
    return Seen(gate="endpoint/a/m", failed=items)


async def park_by_failures(store: Store, of: Scope) -> None:
    await ask(store, of, failed("i1"), count=0)
    await store.pass_time(OVER_S * 1.2)
    await ask(store, of, failed("i2", "i3"), count=0)


class TestFailures:
    async def test_three_failures_of_different_items_over_the_time_park_an_endpoint(self, store: Store):
        of = through(endpoint())
        await park_by_failures(store, of)
        taken = await ask(store, of)
        assert not taken.grants
        assert taken.waits_for == "gate"
        assert 0 < taken.wait_s <= PROBE_S
        assert taken.closed is not None
        assert (taken.closed.gate, taken.closed.reason) == ("endpoint/a/m", "3 items in a row failed")
        assert [one.gate for one in await store.state.parked()] == ["endpoint/a/m"]

    async def test_failures_of_one_item_and_failures_all_at_once_do_not(self, store: Store):
        of = through(endpoint())
        await ask(store, of, failed("i1"), count=0)
        await store.pass_time(OVER_S * 1.2)
        await ask(store, of, failed("i1"), count=0)
        assert len((await ask(store, of)).grants) == 5
        hasty = through(endpoint(name="endpoint/b/m"))
        await ask(store, hasty, Seen(gate="endpoint/b/m", failed=("i1", "i2", "i3", "i4")), count=0)
        assert len((await ask(store, hasty)).grants) == 5

    async def test_an_answer_in_between_starts_the_count_anew(self, store: Store):
        of = through(endpoint())
        at = (await ask(store, of)).grants[0].at
        await ask(store, of, failed("i1", "i2"), count=0)
        await store.pass_time(OVER_S * 1.2)
        await ask(store, of, Seen(gate="endpoint/a/m", answered_at=at, failed=("i3",)), count=0)
        assert len((await ask(store, of)).grants) == 5

    async def test_other_workers_see_it_with_their_next_take(self, store: Store):
        await park_by_failures(store, through(endpoint()))
        other = await another(store).take(through(endpoint(), owner="other"), needs(5))
        assert not other.grants
        assert other.closed is not None


class TestParked:
    async def test_it_is_tried_by_one_call_at_a_time_until_an_answer_opens_it(self, store: Store):
        of = through(endpoint())
        await park_by_failures(store, of)
        await store.pass_time(PROBE_S * 1.1)
        answers = [await ask(store, of, count=5) for _ in range(3)]
        assert [len(taken.grants) for taken in answers] == [1, 0, 0]
        assert answers[0].waits_for == "gate"
        # It fails once more: the next one goes when its time has come, and not before.
        await ask(store, of, failed("i9"), count=0)
        assert not (await ask(store, of)).grants
        await store.pass_time(PROBE_S * 1.1)
        probe = (await ask(store, of)).grants[0]
        answered = Seen(gate="endpoint/a/m", answered_at=probe.at)
        done = [Settlement(grant=probe, tokens=1)]
        assert len((await ask(store, of, answered, settled=done)).grants) == 5
        assert await store.state.parked() == []

    async def test_an_answer_to_a_call_from_before_does_not_open_it(self, store: Store):
        of = through(key())
        before = (await ask(store, of, count=1)).grants[0]
        await store.pass_time(0.01)
        await store.state.park(key(), "401 invalid_api_key")
        taken = await ask(store, of, Seen(gate="credential/k", answered_at=before.at))
        assert not taken.grants
        assert taken.closed is not None
        assert taken.closed.reason == "401 invalid_api_key"

    async def test_one_that_is_sticky_waits_for_a_person(self, store: Store):
        of = through(endpoint(sticky=True))
        await park_by_failures(store, of)
        await store.pass_time(PROBE_S * 1.1)
        taken = await ask(store, of)
        assert not taken.grants
        assert taken.closed is not None
        assert taken.closed.until is None
        await store.state.unpark("endpoint/a/m")
        assert len((await ask(store, of)).grants) == 5

    async def test_what_is_settled_counts_though_nothing_is_granted(self, store: Store):
        of = through(key())
        grants = (await ask(store, of, count=3)).grants
        await store.state.park(key(), "401")
        taken = await ask(store, of, settled=[Settlement(grant=g, sent=False) for g in grants])
        assert not taken.grants
        assert [level.used for level in await store.state.levels(of)] == [0]


class TestTrial:
    async def test_a_credential_without_an_answer_is_first_tried_by_one_call(self, store: Store):
        of = through(key(trial_s=30.0))
        first = await ask(store, of)
        assert len(first.grants) == 1
        waiting = await another(store).take(through(key(trial_s=30.0), owner="other"), needs(5))
        assert not waiting.grants
        assert waiting.closed is None
        assert 0 < waiting.wait_s < 1
        answered = Seen(gate="credential/k", answered_at=first.grants[0].at)
        assert len((await ask(store, of, answered)).grants) == 5

    async def test_nobody_waits_longer_than_the_trial_may_take(self, store: Store):
        of = through(key(trial_s=0.3))
        assert len((await ask(store, of)).grants) == 1
        await store.pass_time(0.35)
        assert [len((await ask(store, of)).grants) for _ in range(3)] == [5, 5, 5]

    async def test_a_grant_that_was_not_used_is_no_trial(self, store: Store):
        of = through(key(trial_s=30.0))
        first = (await ask(store, of)).grants[0]
        unused = Seen(gate="credential/k", unused_at=first.at)
        again = await ask(store, of, unused, settled=[Settlement(grant=first, sent=False)])
        assert len(again.grants) == 1

    async def test_nor_does_it_count_as_the_try_of_what_is_parked(self, store: Store):
        of = through(endpoint())
        await park_by_failures(store, of)
        await store.pass_time(PROBE_S * 1.1)
        probe = (await ask(store, of)).grants[0]
        assert len((await ask(store, of, Seen(gate="endpoint/a/m", unused_at=probe.at))).grants) == 1

    async def test_a_trial_that_fails_for_another_reason_lets_everybody_through(self, store: Store):
        of = through(key(trial_s=30.0))
        assert len((await ask(store, of)).grants) == 1
        lost = Seen(gate="credential/k", failed=("i1",))
        assert len((await ask(store, of, lost)).grants) == 5


class TestLatencies:
    async def test_what_workers_add_is_seen_by_all_for_the_span(self, store: Store):
        await store.state.add_latencies({"a": {10: 2, 11: 1}}, 1.0)
        await another(store).add_latencies({"a": {10: 1}, "b": {3: 5}}, 1.0)
        assert await store.state.latencies(["a", "b", "c"], 1.0) == {
            "a": {10: 3, 11: 1},
            "b": {3: 5},
            "c": {},
        }
        await store.pass_time(1.3)
        assert (await store.state.latencies(["a"], 1.0))["a"] == {}

    async def test_workers_add_at_the_same_time(self, store: Store):
        await asyncio.gather(*(store.state.add_latencies({"a": {1: 1}}, 60.0) for _ in range(20)))
        assert (await store.state.latencies(["a"], 60.0))["a"] == {1: 20}
