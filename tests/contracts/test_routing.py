"""What every implementation does about what people know and wish of routes."""

from __future__ import annotations

import pytest

from airflow_provider_llmbatch.engine.state.protocols import Gate, Seen
from airflow_provider_llmbatch.engine.state.routing import Routing
from airflow_provider_llmbatch.operators.surroundings import open_routing
from tests.contracts.states import Store, another
from tests.contracts.test_gates import PROBE_S, ask, endpoint, failed, key, park_by_failures, through

SPAN_S = 60.0
OTHER = "endpoint/b/m"


@pytest.fixture
def routing(store: Store) -> Routing:
    return open_routing(store.state)


async def test_each_gate_is_shown_as_it_fares(store: Store, routing: Routing):
    of = through(key(), endpoint())
    grant = (await ask(store, of)).grants[0]
    await ask(store, of, Seen(gate="credential/k", answered_at=grant.at), failed("i1", "i2"), count=0)
    await store.state.park(Gate(name=OTHER, sticky=True), "503")
    credential, failing, parked = await routing.conditions()
    assert (credential.gate, credential.closed, credential.failed) == ("credential/k", None, 0)
    assert credential.answered_at is not None
    assert abs(credential.answered_at - grant.at) < 5
    assert (failing.gate, failing.answered_at, failing.failed) == ("endpoint/a/m", None, 2)
    assert parked.closed is not None
    assert (parked.closed.gate, parked.closed.until, parked.closed.reason) == (OTHER, None, "503")


async def test_what_is_forgotten_is_used_as_if_it_had_never_been_called(store: Store, routing: Routing):
    of = through(endpoint(sticky=True))
    await park_by_failures(store, of)
    await store.state.add_latencies({"endpoint/a/m": {7: 30}, OTHER: {7: 1}}, SPAN_S)
    await open_routing(another(store)).forget("endpoint/a/m")
    assert await routing.conditions() == []
    assert await store.state.parked() == []
    assert await store.state.latencies(["endpoint/a/m", OTHER], SPAN_S) == {"endpoint/a/m": {}, OTHER: {7: 1}}
    assert len((await ask(store, of)).grants) == 5
    # The count of failures begins anew, too.
    await ask(store, of, failed("i1", "i2"), count=0)
    await store.pass_time(PROBE_S)
    assert len((await ask(store, of)).grants) == 5


async def test_pins_are_seen_by_all_with_who_and_when_until_they_are_taken_away(
    store: Store, routing: Routing
):
    await routing.pin("endpoint/a/m", by="ann")
    await store.pass_time(0.01)
    await routing.pin(OTHER, by="ben")
    other = open_routing(another(store))
    latest, first = await other.pins()
    assert [(latest.gate, latest.by), (first.gate, first.by)] == [(OTHER, "ben"), ("endpoint/a/m", "ann")]
    assert latest.at > first.at > 1e9
    await store.pass_time(0.01)
    await routing.pin("endpoint/a/m", by="cid")
    assert [(pin.gate, pin.by) for pin in await other.pins()] == [("endpoint/a/m", "cid"), (OTHER, "ben")]
    await other.unpin("endpoint/a/m")
    await other.unpin("endpoint/a/m")
    assert [pin.gate for pin in await routing.pins()] == [OTHER]


async def test_an_endpoint_that_runs_can_choose_is_shown_before_anybody_calls_it(
    store: Store, routing: Routing
):
    await routing.offer(["endpoint/a/m", OTHER])
    await store.state.park(endpoint(), "503")
    found = await open_routing(another(store)).conditions()
    assert [(one.gate, one.offered, one.closed is None) for one in found] == [
        ("endpoint/a/m", True, False),
        (OTHER, True, True),
    ]
