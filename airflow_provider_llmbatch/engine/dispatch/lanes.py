"""
The ways a call can go: one lane for each endpoint of the routes and each credential of its connection.

Which lanes are parked is shared by all workers and comes with each take; what is remembered here only saves
asking.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Literal

from airflow_provider_llmbatch.engine.dispatch.lane import Lane
from airflow_provider_llmbatch.engine.exchange import Failure, Reply
from airflow_provider_llmbatch.engine.observe import events
from airflow_provider_llmbatch.engine.state.protocols import Closed, Health
from airflow_provider_llmbatch.errors import LLMBatchError, StoppedError

#: Items that wait for a slot of one lane while others have room, at most.
QUEUED_AT_MOST = 1000
#: Seconds before a key expires at which the next one is asked for.
EARLY_S = 60.0
#: Seconds of waiting for a limit that an item is spared by another key; for less, only new items go there.
WORTH_MOVING_S = 1.0

#: Opens the lanes of an endpoint whose credentials are not among the names given, from settings read afresh.
Reopen = Callable[[str, frozenset[str]], Awaitable[Sequence[Lane]]]


class Lanes:
    """
    All lanes of a run, and which of them to take.

    :param lanes: by endpoint, in the order in which its credentials are tried.
    :param instead: returns the endpoints that calls go to while one is parked, the first choice first.
    :param health: what is parked, for all workers.
    :param stop: stops the run.
    :param reopen: reads a connection once more and opens lanes for credentials that are new.
    :param observe: gets the events.
    :param now: the process's clock, and ``wall`` Unix seconds.
    """

    def __init__(
        self,
        lanes: Mapping[str, Sequence[Lane]],
        *,
        instead: Callable[[str], Sequence[str]],
        health: Health,
        stop: Callable[[LLMBatchError], None],
        reopen: Reopen,
        observe: events.Observer,
        now: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._lanes = {name: list(found) for name, found in lanes.items()}
        self._instead = instead
        self._health = health
        self._stop = stop
        self._reopen = reopen
        self._observe = observe
        self._now = now
        self._wall = wall
        self._renewing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._renewals: set[asyncio.Task[None]] = set()
        self._used: set[Lane] = set()
        #: parked gates that were told of
        self._told: set[str] = set()
        #: called when there is room that there was not
        self.on_room: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[Lane]:
        """Yield every lane."""
        for lanes in self._lanes.values():
            yield from lanes

    @property
    def used(self) -> Sequence[Lane]:
        """Lanes that items were sent to; at least the first one."""
        return [lane for lane in self if lane in self._used] or [next(iter(self))]

    def has_room(self, under_way: int) -> bool:
        """
        Whether another item may be begun.

        :param under_way: items that are not done, without those that wait for their next try.
        """
        used = self.used
        queued = 0
        if len({lane.route for lane in used}) > 1:
            queued = sum(max(0, lane.slots.wanted - lane.slots.size) for lane in used)
        room = sum(lane.slots.size for lane in (*used, *self._spare(used)))
        return queued < QUEUED_AT_MOST and under_way - queued < room

    def take(self, route: str, at: Lane | None = None) -> Lane:
        """
        Return the lane for an item of an endpoint.

        It is the first one with room in its limits. When none has any it is the one where the item is, else
        the one that has room first; when all are parked, the one that is tried first.

        :param at: where the item is.
        """
        now, lanes = self._now(), self._lanes[route]
        lane = next((lane for lane in lanes if lane.has_room(now)), None)
        if lane is None and at in lanes and at.is_open(now):
            lane = at
        if lane is None:
            lane = min(lanes, key=lambda lane: (max(now, lane.closed_until), lane.full_until))
        self._used.add(lane)
        return lane

    def waits(self, lane: Lane, waits_for: str, wait_s: float) -> None:
        """Take note of what a lane waits for; send those who wait long for a limit where there is room."""
        limits = ("throttle", *(meter.key for meter in lane.scope.meters if meter.window_s is not None))
        if waits_for not in limits:
            return
        now, lanes = self._now(), self._lanes[lane.route]
        for one in lanes:
            # Keys of one account share its limits.
            if one.scope.queue_key == lane.scope.queue_key:
                one.full_until = now + wait_s
        if any(one.has_room(now) for one in lanes):
            self.on_room()
            if wait_s > WORTH_MOVING_S:
                lane.limiter.send_away()

    def wait_s(self, lane: Lane) -> float:
        """Return the seconds that the head of a lane's line waits, until it can be sent here or elsewhere."""
        now = self._now()
        others = (one for one in self._lanes[lane.route] if one is not lane and one.is_open(now))
        return min([lane.limiter.wait_s, *(max(0.0, one.full_until - now) for one in others)])

    def _spare(self, used: Sequence[Lane]) -> list[Lane]:
        """Return lanes with room that nothing was sent to so far, of endpoints that have no other."""
        now = self._now()
        full = {lane.route for lane in used} - {lane.route for lane in used if lane.has_room(now)}
        return [lane for lane in self if lane.route in full and lane not in used and lane.has_room(now)]

    def is_open(self, route: str) -> bool:
        """Whether calls can be sent to an endpoint."""
        now = self._now()
        return any(lane.is_open(now) for lane in self._lanes[route])

    def way_out(self, route: str) -> str | None:
        """Return the endpoint for calls whose lane is parked: the same, or the one that stands in for it."""
        return next((name for name in (route, *self._instead(route)) if self.is_open(name)), None)

    def outage_s(self) -> float:
        """Return for how many seconds nothing could be sent, since every lane that items may go is parked."""
        routes = {name for lane in self.used for name in (lane.route, *self._instead(lane.route))}
        closed = [lane.closed for name in routes for lane in self._lanes[name]]
        since = [one.since for one in closed if one is not None]
        # One that is about to be tried is parked all the same, until it answers.
        return 0.0 if len(since) < len(closed) else max(0.0, self._wall() - max(since))

    def heed(self, lane: Lane, closed: Closed) -> bool:
        """Take note that a lane is parked; return whether its calls have somewhere to go."""
        left_s = None if closed.until is None else max(0.0, closed.until - self._wall())
        is_news = lane.closed is None or lane.closed.gate != closed.gate
        lane.closed = closed
        lane.closed_until = self._now() + (lane.endpoint.probe_s if left_s is None else left_s)
        self._tell(closed, left_s)
        if is_news and lane.is_refused:
            # Somebody else has met the refusal; the connection may hold another key by now.
            task = asyncio.create_task(self._renew_or_stop(lane))
            self._renewals.add(task)
            task.add_done_callback(self._renewals.discard)
        # Whether there is another key, and so a nearer way than the next one, is known when it was read.
        is_read = lane.is_refused and (is_news or self._renewing[lane.route].locked())
        return not is_read and self.way_out(lane.route) is not None

    def answered(self, lane: Lane, granted_at: float) -> None:
        """
        Take note of an answer; it opens a lane that was parked before the call's grant.

        :param granted_at: state time of the grant.
        """
        lane.answered(granted_at)
        if lane.closed is not None and granted_at < lane.closed.since:
            return
        if lane.closed is not None and lane.closed.gate in self._told:
            self._told.discard(lane.closed.gate)
            what, name = people(lane.closed.gate)
            self._observe.on(events.Reopened(what=what, name=name))
        lane.closed, lane.closed_until = None, 0.0

    async def refuse(self, lane: Lane, seen: str, why: str) -> None:
        """
        Park a credential that the service refuses, and read the connection again; stop when none is left.

        Many calls may be refused at once; whoever comes second waits until the first has done so.

        :param seen: status and code, for others.
        :param why: what the service said, for the log.
        """
        async with self._renewing[lane.route]:
            if lane.is_refused and not lane.is_open(self._now()):
                return
            for_s = lane.credential.probe_s
            lane.closed = await self._health.park(lane.credential, seen)
            lane.closed_until = self._now() + for_s
            self._tell(lane.closed, for_s, why)
            await self._renew(lane.route)
        lane.limiter.send_away()
        self._stop_when_none_is_left(lane, why)

    async def renew_early(self) -> None:
        """Read the connections again whose key is about to expire, so that no call meets the refusal."""
        soon = self._wall() + EARLY_S
        for lane in [lane for lane in self if lane.expires_at is not None and lane.expires_at <= soon]:
            lane.expires_at = None
            async with self._renewing[lane.route]:
                await self._renew(lane.route)

    def leave_all_but(self, route: str) -> None:
        """Have what waits for a grant elsewhere look for its way again."""
        for lane in self:
            if lane.route != route:
                lane.limiter.send_away()

    async def close(self) -> None:
        """Leave off reading connections."""
        for task in self._renewals:
            task.cancel()
        await asyncio.gather(*self._renewals, return_exceptions=True)

    def _tell(self, closed: Closed, for_s: float | None, why: str = "") -> None:
        """Tell once of each gate, however many lanes it closes."""
        if closed.gate not in self._told:
            self._told.add(closed.gate)
            what, name = people(closed.gate)
            self._observe.on(events.Parked(what=what, name=name, reason=why or closed.reason, for_s=for_s))

    async def _renew_or_stop(self, lane: Lane) -> None:
        async with self._renewing[lane.route]:
            await self._renew(lane.route)
        lane.limiter.send_away()
        if lane.has_worked and lane.closed is not None:
            self._stop_when_none_is_left(lane, lane.closed.reason)

    async def _renew(self, route: str) -> None:
        known = frozenset(lane.credential.name for lane in self._lanes[route])
        self._lanes[route][:0] = await self._reopen(route, known)

    def _stop_when_none_is_left(self, lane: Lane, why: str) -> None:
        routes = (lane.route, *self._instead(lane.route))
        # What is parked for another reason comes back.
        if all(one.is_refused for name in routes for one in self._lanes[name]):
            name = lane.attempts.endpoint.credential
            self._stop(
                StoppedError(f"No credential is left: the service refuses {name!r}. {why}", retryable=False)
            )


def people(gate: str) -> tuple[Literal["credential", "endpoint"], str]:
    """Return what a gate is, and its name as people know it."""
    what, _, rest = gate.partition("/")
    if what == "credential":
        return "credential", rest.rpartition("/")[0]
    return "endpoint", rest


def in_short(seen: Reply | Failure) -> str:
    """Return status and code, which may go where no text of a service may."""
    if isinstance(seen, Reply):
        return "answered"
    return " ".join(str(word) for word in (seen.status, seen.code or seen.type) if word)
