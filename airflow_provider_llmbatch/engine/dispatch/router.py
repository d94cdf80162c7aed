"""Where an item is sent: first, after what was seen of it, and when its lane is parked."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.dispatch.course import Course
from airflow_provider_llmbatch.engine.dispatch.lanes import Lanes
from airflow_provider_llmbatch.engine.dispatch.table import Table
from airflow_provider_llmbatch.engine.exchange import Failure, Reply
from airflow_provider_llmbatch.engine.items import Item, Message, Outcome, Request, Result


class Composer(Protocol):
    """Makes the requests for one endpoint."""

    def compose(self, item: Item, earlier: Sequence[Message] = ()) -> Request | Result:
        """Return an item's request, or the row of one that cannot be sent there."""

    def measure(self, item: Item, earlier: Sequence[Message] = ()) -> tuple[int, int] | Result:
        """Return the prompt and output tokens of an item, whether they fit or not."""

    def variant(self, item: Item) -> str:
        """Return which version an item is asked with; empty where there is one only."""


class Router:
    """
    Applies the table of routes.

    :param routes: the table, as it stands at the moment.
    :param lanes: the ways there are.
    :param composers: by endpoint.
    :param clocks: the process's clocks.
    """

    def __init__(
        self, routes: Table, lanes: Lanes, composers: Mapping[str, Composer], clocks: Clocks
    ) -> None:
        self._routes = routes
        self._lanes = lanes
        self._composers = composers
        self._clocks = clocks
        #: rolling latency of each endpoint in milliseconds, as all workers have seen it
        self.p95_ms: Mapping[str, float] = {}

    def start(self, item: Item, earlier: Sequence[Message]) -> Course | Result:
        """
        Return an item on its way, or the row of one that can be sent nowhere.

        :param earlier: the earlier turns of the item's chain and their replies.
        """
        remake = functools.partial(self._made, item, earlier)
        found = self._first(item, earlier, remake) if self._routes.has_rules else self._only(remake)
        if isinstance(found, Result):
            return found
        home, name, request = found
        return Course(
            request=request,
            lane=self._lanes.take(name),
            home=home,
            remake=remake,
            group=item.group or "",
            ready_at=self._clocks.now(),
            started_at=self._clocks.wall(),
        )

    def detour(self, course: Course, seen: Mapping[str, Any]) -> bool:
        """
        Send an item elsewhere after what was seen of it, when a rule says so.

        :param seen: ``status``, ``kind``, ``code`` and ``outcome``.
        :return: False when no rule does, or no endpoint of theirs is open.
        """
        if seen["outcome"] == Outcome.TOO_LONG:
            course.outgrown.add(course.lane.route)
        facts = {**seen, "attempts": course.calls_here}
        request = _facts(course.request, course.group)
        tried = set(course.visited)
        while (name := self._routes.after(course.lane.route, facts, request, tried)) is not None:
            tried.add(name)
            if self._lanes.is_open(name) and self._move(course, name):
                return True
        return False

    def reconsider(self, course: Course) -> bool:
        """
        Send an item where it would go now; return whether that is somewhere else.

        Where it was sent before, only a person's pin leads it away.
        """
        if self._obey_pin(course):
            return True
        if course.calls:
            return False
        name = self._lanes.way_out(course.home) or course.lane.route
        lane = self._lanes.take(name, course.lane)
        if lane is course.lane:
            return False
        if name != course.lane.route:
            return self._move(course, name)
        course.lane = lane
        return True

    def elsewhere(self, course: Course) -> bool:
        """Send an item around what is parked; return False when there is no other way."""
        if self._obey_pin(course):
            return True
        name = self._lanes.way_out(course.lane.route)
        if name is None:
            return False
        if name == course.lane.route:
            course.lane = self._lanes.take(name, course.lane)
            return True
        return self._move(course, name)

    def _obey_pin(self, course: Course) -> bool:
        """Send an item to the endpoint that a person has pinned, parked or not; return whether it moved."""
        pin = self._routes.pin
        if pin is None or pin == course.lane.route or pin in course.outgrown:
            return False
        if self._move(course, pin):
            return True
        course.outgrown.add(pin)
        return False

    def _move(self, course: Course, name: str) -> bool:
        request = course.remake(name)
        if isinstance(request, Result):
            return False
        course.move(self._lanes.take(name), request)
        return True

    def _made(self, item: Item, earlier: Sequence[Message], name: str) -> Request | Result:
        return self._composers[name].compose(item, earlier)

    def _only(self, remake: functools.partial[Request | Result]) -> tuple[str, str, Request] | Result:
        name = self._routes.names[0]
        made = remake(name)
        return made if isinstance(made, Result) else (name, name, made)

    def _first(
        self, item: Item, earlier: Sequence[Message], remake: functools.partial[Request | Result]
    ) -> tuple[str, str, Request] | Result:
        default = self._composers[self._routes.names[0]]
        size = default.measure(item, earlier)
        if isinstance(size, Result):
            return size
        facts = {"prompt_tokens": size[0], "output_tokens": size[1], "group": item.group or ""}
        facts["variant"] = default.variant(item)
        home = self._routes.diverted(self._routes.first(facts), facts, self.p95_ms)
        name = self._lanes.way_out(home) or home
        tried = {name}
        while isinstance(made := remake(name), Result):
            seen = {"status": 0, "kind": "", "code": "", "outcome": str(made.outcome), "attempts": 0}
            larger = self._routes.after(name, seen, facts, tried)
            if made.outcome is not Outcome.TOO_LONG or larger is None:
                return made
            tried.add(larger)
            home = name = larger
        return home, name, made


def facts_of(seen: Reply | Failure, outcome: Outcome | None) -> dict[str, Any]:
    """Return what rules may read."""
    failure = seen if isinstance(seen, Failure) else None
    return {
        "status": 200 if failure is None else failure.status or 0,
        "kind": "" if failure is None else failure.kind,
        "code": (failure.code or failure.type or "") if failure else "",
        "outcome": str(outcome or ""),
    }


def _facts(request: Request, group: str) -> dict[str, Any]:
    return {
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens,
        "group": group,
        "variant": request.variant or "",
    }
