"""The ``routes`` of a task: endpoints by name, and the rules that choose between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_llmbatch.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.dispatch.route import Routes

_KEYS = frozenset({"endpoints", "rules", "sticky"})
_ENDPOINT_KEYS = frozenset({"llm_conn_id", "model"})

#: A table as a task gives it: ``endpoints`` by name, ``rules`` and ``sticky``; or connections, each of which
#: stands in for the one before it.
Given = Mapping[str, Any] | Sequence[str]


class End(NamedTuple):
    """An endpoint of the table; None takes what the task says."""

    llm_conn_id: str | None
    model: str | None


class Table(NamedTuple):
    """The checked table of a task."""

    routes: Routes
    ends: Mapping[str, End]
    #: whether a person has to bring a parked endpoint back
    sticky: bool


def read_table(given: Given) -> Table:
    """
    Check a table; nothing is looked up, so this can be done where a DAG is parsed.

    :raises ConfigurationError: naming the part, its value and the remedy.
    """
    from airflow_provider_llmbatch.engine.dispatch.route import read_routes

    if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
        raise ConfigurationError(
            f"routes is {str(given)[:80]!r}; give a mapping with 'endpoints' and 'rules', or a list of "
            "connection ids."
        )
    if not isinstance(given, Mapping):
        given = {"endpoints": {str(conn_id): {"llm_conn_id": conn_id} for conn_id in given}}
    if unknown := sorted(set(given) - _KEYS):
        raise ConfigurationError(f"routes has {unknown[0]!r}; it may have {', '.join(sorted(_KEYS))}.")
    ends = {str(name): _end(str(name), end) for name, end in (given.get("endpoints") or {}).items()}
    sticky = given.get("sticky", False)
    if not isinstance(sticky, bool):
        raise ConfigurationError(f"routes has 'sticky' {sticky!r}; set it to True or False.")
    return Table(read_routes(list(ends), list(given.get("rules") or ())), ends, sticky)


def _end(name: str, given: Any) -> End:
    if isinstance(given, str):
        given = {"llm_conn_id": given}
    if not isinstance(given, Mapping) or not set(given) <= _ENDPOINT_KEYS:
        raise ConfigurationError(
            f"Endpoint {name!r} of the routes is {str(given)[:80]!r}; give 'llm_conn_id' and 'model', or the "
            "id of a connection."
        )
    return End(given.get("llm_conn_id"), given.get("model"))
