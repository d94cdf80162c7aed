"""How credentials and endpoints fare, and what people do about it: have it forgotten, or pin the route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.operators import surroundings
from airflow_provider_llmbatch.operators.bridge import Bridge

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.state.protocols import State
    from airflow_provider_llmbatch.engine.state.routing import Condition, Pin, Routing

T = TypeVar("T")

#: Longest name of a person, in characters.
BY_LENGTH = 100
_ENDPOINT = "endpoint/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A credential or an endpoint, and where it stands."""

    condition: Condition
    #: who has pinned it; None when nobody has
    pin: Pin | None = None
    #: rolling 95 % quantile of the latency in milliseconds; None where no rule of a run asks for it
    p95_ms: float | None = None


def known() -> Sequence[Known]:
    """
    Return every credential and endpoint that was heard of within a day or is pinned, by name.

    :raises StoreError: when the state cannot be reached.
    """
    return _with_routing(_known)


async def _known(state: State, routing: Routing) -> Sequence[Known]:
    from airflow_provider_llmbatch.engine.dispatch.policy import Policy
    from airflow_provider_llmbatch.engine.observe.latency import LatencyHistogram
    from airflow_provider_llmbatch.engine.state.routing import Condition

    pins = {pin.gate: pin for pin in await routing.pins()}
    found = {condition.gate: condition for condition in await routing.conditions()}
    ends = [gate for gate in found if gate.startswith(_ENDPOINT)]
    counts = await state.latencies(ends, Policy().latency_span_s)
    histograms = {gate: LatencyHistogram.of(calls) for gate, calls in counts.items()}
    p95_ms = {gate: calls.quantile(0.95) for gate, calls in histograms.items() if len(calls)}
    return [
        Known(condition=found.get(gate, Condition(gate=gate)), pin=pins.get(gate), p95_ms=p95_ms.get(gate))
        for gate in sorted(pins.keys() | found.keys())
    ]


def reset(gate: str) -> None:
    """
    Forget all that was seen at a credential or an endpoint; it is used as if it had never been called.

    :param gate: as :func:`known` names it.
    :raises InputError: when nothing is known of it.
    :raises StoreError: when the state cannot be reached.
    """

    async def change(state: State, routing: Routing) -> None:
        names = [condition.gate for condition in await routing.conditions()]
        if gate not in names:
            raise InputError(
                f"Nothing is known of {gate!r}; {', '.join(names) or 'nothing at all'} is known."
            )
        await routing.forget(gate)

    _with_routing(change)


def pin(gate: str, *, by: str) -> None:
    """
    Have all runs whose routes lead to an endpoint send everything there, until it is unpinned.

    Runs heed it within two seconds, parked or not; of several pins the latest counts.

    :param gate: an endpoint, as :func:`known` names it.
    :param by: who wants it, for people to read.
    :raises InputError: when no run of the last day can choose that endpoint.
    :raises StoreError: when the state cannot be reached.
    """

    async def change(state: State, routing: Routing) -> None:
        names = [condition.gate for condition in await routing.conditions() if condition.offered]
        if gate not in names:
            raise InputError(
                f"No run that began within a day can choose {gate!r}; "
                f"{', '.join(names) or 'nothing at all'} can be pinned."
            )
        await routing.pin(gate, by=by[:BY_LENGTH])

    _with_routing(change)


def unpin(gate: str) -> None:
    """
    Let the rules of the routes decide again.

    :param gate: as :func:`known` names it.
    :raises InputError: when it is not pinned.
    :raises StoreError: when the state cannot be reached.
    """

    async def change(state: State, routing: Routing) -> None:
        names = [one.gate for one in await routing.pins()]
        if gate not in names:
            raise InputError(f"Nobody has pinned {gate!r}; {', '.join(names) or 'nothing at all'} is pinned.")
        await routing.unpin(gate)

    _with_routing(change)


def _with_routing(ask: Callable[[State, Routing], Awaitable[T]]) -> T:
    from airflow_provider_llmbatch.settings import load_settings

    async def main() -> T:
        state = surroundings.open_state(load_settings())
        try:
            return await ask(state, surroundings.open_routing(state))
        finally:
            await state.close()

    return Bridge[T]().run(main)
