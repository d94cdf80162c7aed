"""
The rules of a gate, pure: what closes a credential or an endpoint, and what opens it again.

``redis/lua/gates.lua`` has the same rules; one contract suite holds both to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_llmbatch.engine.state.protocols import Closed, Gate, Seen
from airflow_provider_llmbatch.engine.state.routing import Condition

#: Seconds for which an answer shows that a credential works, and for which a trial was one.
GOOD_FOR_S = 300.0
#: Seconds after which somebody asks again who waits for another's trial.
ASK_AGAIN_S = 0.05
#: A time that is long past.
NEVER = -1e12
#: Seconds for which an open gate is remembered of which nothing is heard.
KEPT_S = 86400.0
#: Seconds that somebody is told to wait for a person.
PERSON_S = 3600.0


@dataclass(slots=True, kw_only=True)
class Record:
    """What is known of a gate; times in seconds of the state's clock."""

    #: parked since, and until when; None when it is not
    since: float | None = None
    until: float | None = None
    sticky: bool = False
    reason: str = ""
    #: the latest answer
    good: float = NEVER
    #: until when one call has it alone
    trial: float = NEVER
    #: failures in a row: when they began, and the items that met one
    first: float | None = None
    failed: tuple[str, ...] = ()

    def park(self, gate: Gate, reason: str, now: float) -> Closed:
        """Close it."""
        since = self.since = now if self.since is None else self.since
        self.until, self.sticky, self.reason = now + gate.probe_s, gate.sticky, reason
        self.first, self.failed = None, ()
        return Closed(gate=gate.name, since=since, until=None if self.sticky else self.until, reason=reason)

    def open(self) -> None:
        """Forget all that speaks against it."""
        self.since = self.until = self.first = None
        self.sticky, self.reason, self.failed = False, "", ()

    def hear(self, gate: Gate, seen: Seen, now: float) -> None:
        """Take in what calls have met; an answer to a call from before it was parked does not open it."""
        if seen.answered_at is not None:
            self.good = now
            if self.since is None or (seen.answered_at >= self.since and not self.sticky):
                self.open()
        if seen.unused_at is not None and seen.unused_at >= (self.since or NEVER) and not self.sticky:
            # Nobody has tried it after all.
            self.until = None if self.until is None else min(self.until, now)
            self.trial = NEVER if self.trial > now else self.trial
        if seen.failed:
            # The call that had it alone is over, and says nothing about it.
            self.trial = min(self.trial, now)
        if not gate.failures or self.since is not None or not seen.failed:
            return
        self.first = now if self.first is None else self.first
        self.failed = tuple(dict.fromkeys((*self.failed, *seen.failed)))[: gate.failures]
        if len(self.failed) >= gate.failures and now - self.first >= gate.over_s:
            self.park(gate, f"{len(self.failed)} items in a row failed", now)

    def wait_s(self, gate: Gate, now: float) -> float:
        """Return the seconds until somebody may try to pass; 0 now."""
        if self.sticky:
            return PERSON_S
        if self.until is not None:
            return max(0.0, self.until - now)
        return ASK_AGAIN_S if self._is_tried(gate, now) and now < self.trial else 0.0

    def is_trial(self, gate: Gate, now: float) -> bool:
        """Whether the next call goes alone."""
        return self.until is not None or (self._is_tried(gate, now) and now - self.trial > GOOD_FOR_S)

    def begin_trial(self, gate: Gate, now: float) -> None:
        """Let one call have it alone."""
        if self.until is not None:
            self.until = now + gate.probe_s
        elif self._is_tried(gate, now):
            self.trial = now + gate.trial_s

    def closed(self, name: str) -> Closed | None:
        """Return how it is closed, when it is parked."""
        if self.since is None:
            return None
        until = None if self.sticky else self.until
        return Closed(gate=name, since=self.since, until=until, reason=self.reason)

    def is_stale(self, now: float) -> bool:
        """Whether nobody has heard of it for so long that nothing of it counts any more."""
        heard = max(self.good, self.trial, NEVER if self.first is None else self.first)
        return self.since is None and now - heard > KEPT_S

    def condition(self, name: str) -> Condition:
        """Return what people are told of it."""
        answered_at = None if self.good == NEVER else self.good
        return Condition(
            gate=name, closed=self.closed(name), answered_at=answered_at, failed=len(self.failed)
        )

    def _is_tried(self, gate: Gate, now: float) -> bool:
        return gate.trial_s > 0 and now - self.good > GOOD_FOR_S
