"""What has happened to one item so far, and the rows that can end it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.engine.dispatch.advise import History
from airflow_provider_llmbatch.engine.dispatch.ports import Checked
from airflow_provider_llmbatch.engine.exchange import Final, Reply, Rewrite
from airflow_provider_llmbatch.engine.items import (
    Cost,
    ItemError,
    Json,
    Message,
    Outcome,
    Request,
    Result,
    RunRef,
    Usage,
)

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.dispatch.lane import Lane

#: Composes an item for the endpoint of that name.
Remake = Callable[[str], Request | Result]
#: By how much a cut reply's output cap is raised.
ENLARGE_BY = 2
#: Parameters that cap the output; the newer one wins where both are set.
CAPS = ("max_completion_tokens", "max_tokens")


@dataclass(slots=True)
class Course:
    """
    One item on its way.

    :param request: what was composed.
    :param lane: where it is sent.
    :param home: the endpoint that the rules chose for it, wherever it is sent.
    :param remake: composes the same item for another endpoint.
    :param group: the chain that it belongs to, if any.
    :param ready_at: when it could first have been sent, on the process's clock.
    :param started_at: the same in Unix seconds.
    """

    request: Request
    lane: Lane
    home: str
    remake: Remake
    group: str
    ready_at: float
    started_at: float
    messages: Sequence[Message] = field(init=False)
    prompt_tokens: int = field(init=False)
    params: dict[str, Json] = field(init=False)
    output_tokens: int = field(init=False)
    #: calls made, and failures so far that count as tries
    calls: int = 0
    tries: int = 0
    throttled: int = 0
    repairs: int = 0
    enlarged: bool = False
    usage: Usage = Usage()
    cost: Cost = Cost()
    call_s: float = 0.0
    #: seconds spent in calls
    calling_s: float = 0.0
    #: how the item ends when a call that was to better its reply cannot be made
    otherwise: Result | None = None
    #: parameters that were taken out of this item's request
    dropped: set[str] = field(default_factory=set)
    #: endpoints that it has been to, and the calls made at this one
    visited: set[str] = field(default_factory=set)
    #: endpoints that it is too long for, as far as was seen
    outgrown: set[str] = field(default_factory=set)
    calls_here: int = 0

    def __post_init__(self) -> None:
        self._begin()

    def move(self, lane: Lane, request: Request) -> None:
        """Go on at another endpoint, with all tries before it."""
        self.lane, self.request = lane, request
        self.tries = self.throttled = self.repairs = self.calls_here = 0
        self.enlarged = False
        self._begin()

    def _begin(self) -> None:
        self.visited.add(self.lane.route)
        self.messages = self.request.messages
        self.prompt_tokens = self.request.prompt_tokens
        self.params = dict(self.request.params)
        self.output_tokens = self.request.output_tokens
        self.dropped = set()

    @property
    def tokens(self) -> int:
        """Tokens that the next call reserves."""
        return self.prompt_tokens + self.output_tokens

    def was_called(self, seconds: float) -> None:
        """Count a call, and how long it was open."""
        self.calls += 1
        self.calls_here += 1
        self.call_s = seconds
        self.calling_s += seconds

    def history(self, now: float, max_tries: int, max_wait_s: float, luck: float) -> History:
        """Return what :func:`.advise.advise` asks for."""
        return History(
            tries=self.tries + 1,
            max_tries=max_tries,
            throttled=self.throttled + 1,
            waited_s=now - self.ready_at - self.calling_s,
            max_wait_s=max_wait_s,
            params=frozenset(self.params),
            dropped=frozenset(self.dropped),
            enlarged=self.enlarged,
            luck=luck,
        )

    def rewrite(self, rewrite: Rewrite) -> None:
        """Drop or rename a parameter, if it is there."""
        if rewrite.drop not in self.params:
            return
        self.dropped.add(rewrite.drop)
        value = self.params.pop(rewrite.drop)
        if rewrite.rename_to is not None:
            self.params[rewrite.rename_to] = value

    def follow(self) -> None:
        """Leave out what others have learnt that the service does not take."""
        for rewrite in self.lane.learnt:
            self.rewrite(rewrite)

    def repair(self, messages: Sequence[Message], more_tokens: int) -> None:
        """Ask again with what was wrong; it counts as a try."""
        self.tries += 1
        self.repairs += 1
        self.messages = messages
        self.prompt_tokens = self.request.prompt_tokens + more_tokens

    def enlarge(self, window: int | None) -> bool:
        """
        Raise the output cap.

        :param window: tokens that fit the model.
        :return: False when there is no cap to raise, or no room.
        """
        name = next((name for name in CAPS if isinstance(self.params.get(name), int)), None)
        if name is None:
            return False
        room = None if window is None else window - self.prompt_tokens
        raised = self.params[name] * ENLARGE_BY if room is None else min(self.params[name] * ENLARGE_BY, room)
        if raised <= self.params[name]:
            return False
        self.params[name] = self.output_tokens = raised
        self.enlarged = True
        return True

    def answered(self, checked: Checked, reply: Reply, **where: Any) -> Result:
        """Return the row of a complete reply, good or not."""
        return self._result(
            Outcome.OK if checked.problem is None else Outcome.INVALID_OUTPUT,
            error=checked.problem,
            output=checked.output,
            raw_output=checked.raw_output,
            salvage=checked.salvage,
            **_of(reply),
            **where,
        )

    def ended(self, final: Final, reply: Reply | None, **where: Any) -> Result:
        """Return the row of an item that advice has ended."""
        shown = {} if reply is None else {**_of(reply), "raw_output": reply.text or reply.refusal}
        return self._result(final.outcome, error=final.error, **shown, **where)

    def unsent(self, reason: str, **where: Any) -> Result:
        """Return the row of an item that was given up before it was answered."""
        return self._result(Outcome.UNSENT, error=ItemError(kind="stopped", message=reason), **where)

    def _result(self, outcome: Outcome, *, now: float, run: RunRef, **fields: Any) -> Result:
        request = self.request
        return Result(
            index=request.index,
            id=request.id,
            outcome=outcome,
            prompt=request.prompt,
            variant=request.variant,
            attempts=self.calls,
            usage=self.usage,
            cost=self.cost,
            queue_ms=max(0.0, now - self.ready_at - self.calling_s) * 1000,
            call_ms=self.call_s * 1000,
            started_at=self.started_at,
            run=run,
            metadata=request.metadata,
            **fields,
        )


def _of(reply: Reply) -> dict[str, Any]:
    return {
        "served_model": reply.model,
        "request_id": reply.request_id,
        "finish_reason": reply.finish_reason,
    }
