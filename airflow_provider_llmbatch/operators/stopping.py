"""Stop a run so that it goes on later: what a page, a command or a script calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_llmbatch.errors import ConfigurationError
from airflow_provider_llmbatch.operators import surroundings
from airflow_provider_llmbatch.operators.bridge import Bridge

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.state.stops import Stop, Stops

T = TypeVar("T")

#: Longest name and longest reason, in characters: they stand in logs and manifests.
BY_LENGTH, WHY_LENGTH = 100, 200


def stop_run(dag_id: str, run_id: str, *, by: str, why: str = "") -> None:
    """
    Have the tasks of a run that send items stop within two seconds.

    They await and store what is in flight, leave the rest ``unsent``, and fail without a retry, each with
    ``by`` and ``why`` in its log. A task of the run that starts later stops at once; a deferred one when it
    comes back. Clearing one of them lets the run go on, and so does :func:`let_go_on`.

    :param by: who wants it, for people to read.
    :param why: the reason; it may be left out.
    :raises ConfigurationError: when nobody is named, or a text is too long.
    :raises StoreError: when the state cannot be reached.
    """
    for name, text, longest in (("by", by, BY_LENGTH), ("why", why, WHY_LENGTH)):
        if len(text) > longest:
            raise ConfigurationError(
                f"{name} has {len(text)} characters; {longest} are the most, so shorten it."
            )
    if not by.strip():
        raise ConfigurationError("by is empty; say who stops the run.")
    _with_stops(lambda stops: stops.ask(_key(dag_id, run_id), by=by.strip(), why=" ".join(why.split())))


def let_go_on(dag_id: str, run_id: str) -> None:
    """
    Let a run go on: tasks that start from now on send again. Those that have stopped are cleared as usual.

    :raises StoreError: when the state cannot be reached.
    """
    _with_stops(lambda stops: stops.lift(_key(dag_id, run_id)))


def stop_of(dag_id: str, run_id: str) -> Stop | None:
    """
    Return who stops a run, and why; None when it may go on.

    :raises StoreError: when the state cannot be reached.
    """
    return _with_stops(lambda stops: stops.asked(_key(dag_id, run_id)))


def _with_stops(ask: Callable[[Stops], Awaitable[T]]) -> T:
    from airflow_provider_llmbatch.settings import load_settings

    async def main() -> T:
        state = surroundings.open_state(load_settings())
        try:
            return await ask(surroundings.open_stops(state))
        finally:
            await state.close()

    return Bridge[T]().run(main)


def _key(dag_id: str, run_id: str) -> str:
    """Return the name that :attr:`.engine.job.Job.run_key` has for a run."""
    return f"{dag_id}/{run_id}"
