"""Join pins and the router: while a person has pinned an endpoint, calls of runs that know it go there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from airflow_provider_llmbatch.engine.dispatch.lanes import Lanes
from airflow_provider_llmbatch.engine.dispatch.table import Table
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.state.routing import Pin, Pins
from airflow_provider_llmbatch.errors import StoreError

#: Seconds after which it is asked again.
EVERY_S = 2.0


@contextlib.asynccontextmanager
async def pinned(
    pins: Pins | None, table: Table, lanes: Lanes, observe: events.Observer
) -> AsyncIterator[None]:
    """
    Keep a table pinned as people wish, from before the first call.

    What is in flight stays where it is; what waits for a grant elsewhere is sent away at once.

    :param pins: where people want calls to go; None follows the rules.
    """
    if pins is None or len(table.names) < 2:
        yield
        return
    with contextlib.suppress(StoreError):
        await pins.offer(sorted({lane.endpoint.name for lane in lanes}))
    await _look(pins, table, lanes, observe)
    watch = asyncio.create_task(_watch(pins, table, lanes, observe))
    try:
        yield
    finally:
        watch.cancel()


async def _watch(pins: Pins, table: Table, lanes: Lanes, observe: events.Observer) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        await _look(pins, table, lanes, observe)


async def _look(pins: Pins, table: Table, lanes: Lanes, observe: events.Observer) -> None:
    """Follow the latest pin that the table has an endpoint for; while state is away, what is known holds."""
    routes = {lane.endpoint.name: lane.route for lane in lanes}
    with contextlib.suppress(StoreError):
        pin = next((pin for pin in await pins.pins() if pin.gate in routes), None)
        _follow(pin, routes, table, lanes, observe)


def _follow(
    pin: Pin | None, routes: Mapping[str, str], table: Table, lanes: Lanes, observe: events.Observer
) -> None:
    name = routes[pin.gate] if pin else None
    if name == table.pin:
        return
    table.pin = name
    observe.on(events.Pinned(route=name, by=pin.by if pin else ""))
    if name is not None:
        lanes.leave_all_but(name)
