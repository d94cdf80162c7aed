"""The table of routes as it stands at the moment: a person may have pinned it to one of its endpoints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflow_provider_llmbatch.engine.dispatch.route import Routes
from airflow_provider_llmbatch.engine.items import Outcome


class Table:
    """
    Answers like its :class:`.route.Routes`, and while it is pinned with the one endpoint.

    Only an item that is too long for that endpoint still goes where the rules lead it.

    :param routes: the table as the task has it.
    """

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self.names = routes.names
        #: the endpoint that all calls go to by the wish of a person; None follows the rules
        self.pin: str | None = None

    @property
    def has_rules(self) -> bool:
        """Whether there is anything to choose by."""
        return bool(self._routes.rules)

    def first(self, request: Mapping[str, Any]) -> str:
        """See :meth:`.route.Routes.first`."""
        return self._routes.first(request) if self.pin is None else self.pin

    def diverted(self, name: str, request: Mapping[str, Any], p95_ms: Mapping[str, float]) -> str:
        """See :meth:`.route.Routes.diverted`."""
        return self._routes.diverted(name, request, p95_ms) if self.pin is None else name

    def after(
        self, name: str, facts: Mapping[str, Any], request: Mapping[str, Any], tried: Collection[str]
    ) -> str | None:
        """See :meth:`.route.Routes.after`."""
        if self.pin is None or facts["outcome"] == Outcome.TOO_LONG:
            return self._routes.after(name, facts, request, tried)
        # Whatever would be left for another endpoint is left for this one.
        is_left = self.pin not in tried and self._routes.after(name, facts, request, {name}) is not None
        return self.pin if is_left else None

    def instead(self, name: str) -> Sequence[str]:
        """See :meth:`.route.Routes.instead`."""
        return self._routes.instead(name) if self.pin is None else ()
