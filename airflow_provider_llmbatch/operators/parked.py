"""Credentials and endpoints that no worker uses for now: which they are, and how a person opens one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_llmbatch.errors import InputError
from airflow_provider_llmbatch.operators import surroundings
from airflow_provider_llmbatch.operators.bridge import Bridge

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.state.protocols import Closed, State

T = TypeVar("T")


def parked() -> Sequence[Closed]:
    """
    Return what is parked.

    :raises StoreError: when the state cannot be reached.
    """
    return _with_state(lambda state: state.parked())


def unpark(gate: str) -> None:
    """
    Let calls through a gate from now on; one that still fails is parked again.

    :param gate: as :func:`parked` names it.
    :raises InputError: when no gate of that name is parked.
    :raises StoreError: when the state cannot be reached.
    """
    names = [closed.gate for closed in parked()]
    if gate not in names:
        raise InputError(
            f"Nothing of the name {gate!r} is parked; {', '.join(names) or 'nothing at all'} is."
        )
    _with_state(lambda state: state.unpark(gate))


def _with_state(ask: Callable[[State], Awaitable[T]]) -> T:
    from airflow_provider_llmbatch.settings import load_settings

    async def main() -> T:
        state = surroundings.open_state(load_settings())
        try:
            return await ask(state)
        finally:
            await state.close()

    return Bridge[T]().run(main)
