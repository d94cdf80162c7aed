"""
A review from its first ticket to its last row: what a review task does each time it has a worker.

All that was decided, and all that was done, is on storage. So a sitting looks there what comes next, whether
the task was resumed, retried, cleared or killed: open a round, wait for people, carry out, or end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_llmbatch.errors import StoppedError
from airflow_provider_llmbatch.operators.parking import APPLY

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.items import RunRef
    from airflow_provider_llmbatch.engine.review.choose import Rules
    from airflow_provider_llmbatch.engine.review.inbox import Inbox
    from airflow_provider_llmbatch.engine.review.queue import Queue
    from airflow_provider_llmbatch.engine.review.rounds import Round
    from airflow_provider_llmbatch.engine.review.terms import Terms
    from airflow_provider_llmbatch.engine.reviewing import Portion
    from airflow_provider_llmbatch.engine.summary import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """What a review task has in hand."""

    queue: Queue
    inbox: Inbox
    run: RunRef
    #: what all tries have in common until somebody clears the task
    occasion: str
    #: reads the results as they are now
    portions: Callable[[], Sequence[Portion]]
    rules: Rules
    #: of a round that is opened now
    terms: Callable[[], Terms]
    #: leaves the worker until there is something to do; returns when there is already
    wait: Callable[[Round], None]
    #: carries a closed round out
    carry_out: Callable[[Round, Sequence[Portion]], Sequence[Manifest]]
    #: tells people of a round that waits for them
    alert: Callable[[Round], None]
    note: Callable[[str], None]
    wall: Callable[[], float] = time.time

    def begin(self) -> list[dict[str, Any]]:
        """Review, after the task was started, retried or cleared; return the manifests."""
        self.queue.refresh()
        done = self.queue.done
        if done is not None:
            if done["occasion"] == self.occasion:
                return list(done["manifests"])
            self.queue.reopen()
        return self.go_on(None)

    def go_on(self, answer: str | None) -> list[dict[str, Any]]:
        """
        Review, from wherever it is; return the manifests when it is over.

        :param answer: what the request in Airflow's pages was answered with.
        :raises StoppedError: when nobody decided in time, and that shall fail the task; or when retries
            stopped before their end.
        """
        from airflow_provider_llmbatch.engine.deciding import account

        self.queue.refresh()
        portions = self.portions()
        manifests: Sequence[Manifest] | None = None
        while (round := self._round(portions)) is not None:
            if round.state == "open":
                self._list(round, "open")
                self._wait(round, answer)
                answer = None
            manifests = self.carry_out(round, portions)
            round.applied()
        if manifests is None:
            manifests = [account(portion, self.wall()) for portion in portions]
        values = [manifest.to_json() for manifest in manifests]
        self.queue.finish(values, occasion=self.occasion, at=self.wall())
        if self.queue.latest is not None:
            self._list(self.queue.latest, "done")
        return values

    def _round(self, portions: Sequence[Portion]) -> Round | None:
        """Return the round to work on; None when there is nothing more to ask."""
        from airflow_provider_llmbatch.engine.deciding import decided_places
        from airflow_provider_llmbatch.engine.reviewing import open_round

        latest = self.queue.latest
        if latest is not None and latest.state != "applied":
            return latest
        own = [round for round in self.queue.rounds if round.occasion == self.occasion]
        terms = self.terms()
        if len(own) >= terms.max_rounds:
            return None
        # Those that a person has left as they are, are not asked about again.
        only = decided_places(own[-1], portions) if own else None
        if only is not None and not any(only.values()):
            return None
        rules = self.rules.further if own else self.rules
        opened = open_round(
            self.queue,
            portions,
            rules,
            terms,
            occasion=self.occasion,
            at=self.wall(),
            only=only,
            note=self.note,
        )
        if opened is not None:
            self.note(f"Round {opened.number}: {opened.size} items wait for a person.")
        return opened

    def _wait(self, round: Round, answer: str | None) -> None:
        """Close a round as soon as it may be; until then, leave the worker."""
        while round.state == "open":
            if round.is_complete:
                self.queue.close("all" if not round.open_tickets() else "quorum", at=self.wall())
            elif answer == APPLY:
                self.queue.close("person", at=self.wall())
            elif self._is_late(round):
                self.queue.close("deadline", at=self.wall())
            else:
                self.alert(round)
                self.wait(round)
                self.queue.refresh()

    def _is_late(self, round: Round) -> bool:
        terms = round.terms
        if terms.deadline is None or self.wall() < terms.deadline:
            return False
        if terms.default == "fail" and round.occasion == self.occasion:
            undecided = round.size - len(round.decisions)
            raise StoppedError(
                f"{undecided} of {round.size} items were not decided in time. What was decided is kept; "
                "clear the task to apply it and to ask for the rest again.",
                retryable=False,
            )
        return True

    def _list(self, round: Round, state: Any) -> None:
        """Show the queue in the list of queues, or take it off."""
        from airflow_provider_llmbatch.engine.review.inbox import Post

        ref = self.run
        post = Post(
            dag_id=ref.dag,
            run_id=ref.run,
            task_id=ref.task,
            map_index=ref.map_index,
            opened_at=round.opened_at,
        )
        if round.size or state == "done":
            self.inbox.put(post, state)


def figures(round: Round, address: str) -> Mapping[str, Any]:
    """Return what alerts can say of a round."""
    counts = round.counts()
    return {
        "round": round.number,
        "tickets": round.size,
        "outcomes": counts["outcome"],
        "errors": counts["error"],
        "deadline": round.terms.deadline,
        "link": address,
    }
