"""
The task log: a line of progress now and then, one line for each kind of failure, an account at the end.

However many items fail, the log stays short: its length depends on the time and on the kinds of failures.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Usage
from airflow_provider_llmbatch.engine.observe.events import (
    CallFailed,
    Event,
    ItemDone,
    Parked,
    Pinned,
    Pulse,
    Reopened,
    Rewritten,
    RunEnded,
    RunStarted,
    StateBack,
    StateLost,
    Throttled,
)
from airflow_provider_llmbatch.engine.observe.kinds import FailureKinds, one_line
from airflow_provider_llmbatch.engine.observe.rate import Rate

#: what a run waits for that is no limit, in words
_WAITS = {
    "in_flight": "open calls to end",
    "throttle": "the service, which asked for a pause",
    "turn": "its turn at the limits",
}


class Log(Protocol):
    """The part of a logger that is used."""

    def info(self, message: str, /, *args: object) -> None:
        """Log a line."""

    def warning(self, message: str, /, *args: object) -> None:
        """Log a line that somebody should read."""


class LogObserver:
    """
    Write what happens into a log.

    :param logger: where lines go.
    :param total: how many items there are.
    :param interval_s: seconds between two lines of progress.
    :param now: a clock that only goes forward, in seconds.
    """

    def __init__(
        self,
        logger: Log,
        total: int,
        interval_s: float = 10.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = logger
        self._total = total
        self._interval_s = interval_s
        self._now = now
        self._outcomes: Counter[Outcome] = Counter()
        self._salvaged = 0
        self._usage = Usage()
        self._cost = Cost()
        self._resumed = 0
        self._waits_for = ""
        self._kinds = FailureKinds()
        self._started = self._told_at = now()
        self._rate = Rate(self._started)

    def on(self, event: Event) -> None:
        """Count an event, and write a line if it is time or the event deserves one."""
        match event:
            case ItemDone():
                self._count(event)
            case CallFailed():
                self._failed(event)
            case Pulse():
                self._waits_for = _waited_for(event.waits_for)
            case Throttled():
                self._waits_for = f"the service, which asked for {_duration(event.delay_s)}"
            case RunStarted():
                self._begin(event)
            case RunEnded():
                self._end(event)
                return
            case _:
                self._tell_change(event)
        self._tick()

    def _tick(self) -> None:
        """Write a line of progress if it is time; pulses come while nothing else happens."""
        now = self._now()
        if now - self._told_at >= self._interval_s:
            self._told_at = now
            self._log.info("%s", self._progress(now))

    def _begin(self, event: RunStarted) -> None:
        self._total = event.items
        self._resumed = event.resumed
        with_what = " ".join(part for part in (event.model, event.prompt) if part)
        resumed = f", {event.resumed:,} of them finished by earlier tries" if event.resumed else ""
        self._log.info("%s items%s%s", f"{event.items:,}", f" for {with_what}" if with_what else "", resumed)

    def _count(self, event: ItemDone) -> None:
        self._outcomes[event.outcome] += 1
        self._salvaged += event.salvage is not None
        self._usage += event.usage
        self._cost += event.cost

    def _failed(self, event: CallFailed) -> None:
        kind = self._kinds.add(event.kind, event.status, event.code, event.message)
        if kind is not None:
            self._log.warning(
                "Call failed (%s), item %s, attempt %d, then %s: %s",
                *(kind.name, one_line(event.item_id), event.attempt, event.advice, kind.example),
            )

    def _tell_change(self, event: Event) -> None:
        match event:
            case Parked():
                back = f", tried again in {_duration(event.for_s)}" if event.for_s is not None else ""
                what = f"{event.what} {event.name}"
                self._log.warning("Parked %s for everybody%s: %s", what, back, one_line(event.reason))
            case Reopened():
                self._log.info("%s %s answers again", event.what, event.name)
            case Pinned(route=None):
                self._log.info("The rules of the routes decide again")
            case Pinned():
                self._log.warning(
                    "%s has pinned the route: all calls go to %s", one_line(event.by), event.route
                )
            case Rewritten():
                instead = f"sent as {event.rename_to}" if event.rename_to else "left out"
                where = f"{event.model} at {event.endpoint}"
                self._log.info("%s does not take %s; it is %s from now on", where, event.drop, instead)
            case StateLost():
                reason = one_line(event.reason)
                self._log.warning("Degraded, %s: the shared state is away: %s", event.policy, reason)
            case StateBack():
                self._log.info("The shared state is back after %s", _duration(event.away_s))

    def _end(self, event: RunEnded) -> None:
        took = _duration(self._now() - self._started)
        reason = f": {one_line(event.reason)}" if event.reason else ""
        self._log.info("%s after %s%s. %s", event.state.capitalize(), took, reason, self._account())
        for kind in self._kinds.by_count():
            self._log.info("%s calls failed (%s), such as: %s", f"{kind.count:,}", kind.name, kind.example)
        if event.possible_double_paid:
            self._log.warning(
                "%d calls may have been charged without leaving a reply", event.possible_double_paid
            )

    def _progress(self, now: float) -> str:
        done = self._resumed + self._outcomes.total()
        rate = self._rate.at(now, self._outcomes.total())
        share = f" ({100 * done // self._total}%)" if self._total else ""
        left = (
            f", about {_duration((self._total - done) / rate)} to go" if rate and self._total > done else ""
        )
        waits = f"; waits for {self._waits_for}" if self._waits_for else ""
        return f"{done:,} of {self._total:,} done{share}, {rate:.1f}/s{left}; {self._account()}{waits}"

    def _account(self) -> str:
        outcomes = ", ".join(f"{outcome} {count:,}" for outcome, count in self._outcomes.most_common())
        usage = self._usage
        cached = f" ({usage.cached:,} cached)" if usage.cached else ""
        about = "about " if usage.estimated else ""
        tokens = f"{about}{usage.prompt:,} tokens in{cached}, {usage.completion:,} out"
        money = f"{'at least ' if self._cost.unpriced else ''}${self._cost.usd:.4f}"
        salvaged = f"{self._salvaged:,} salvaged" if self._salvaged else ""
        failed = self._kinds.total
        calls = f"{failed:,} failed calls" if failed else ""
        return "; ".join(part for part in (outcomes, salvaged, calls, tokens, money) if part)


def _waited_for(key: str) -> str:
    """Return what a run waits for; limits are named by account, models and amount."""
    parts = key.split("/")
    if len(parts) != 3:
        return _WAITS.get(key, key)
    account, models, limit = parts
    return f"{limit} of account {account}" + ("" if models == "*" else f", models {models}")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
