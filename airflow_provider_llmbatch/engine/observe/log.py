"""
The task log: a line of progress now and then, one line for each kind of failure, an account at the end.

However many items fail, the log stays short: its length depends on the time and on the kinds of failures.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Usage
from airflow_provider_llmbatch.engine.observe.causes import likely_cause
from airflow_provider_llmbatch.engine.observe.events import (
    CallFailed,
    Event,
    ItemDone,
    Parked,
    Pulse,
    Reopened,
    Rewritten,
    RunEnded,
    RunStarted,
    StateBack,
    StateLost,
    Throttled,
)
from airflow_provider_llmbatch.engine.observe.rate import Rate

#: kinds of failures that are told apart; codes are the service's, and could be any number
KINDS = 30
#: what a run waits for that is no limit, in words
_WAITS = {
    "in_flight": "open calls to end",
    "throttle": "the service, which asked for a pause",
    "turn": "its turn at the limits",
}
#: longest example of a failure, in characters
EXAMPLE_LENGTH = 200


class Log(Protocol):
    """The part of a logger that is used."""

    def info(self, message: str, /, *args: object) -> None:
        """Log a line."""

    def warning(self, message: str, /, *args: object) -> None:
        """Log a line that somebody should read."""


@dataclass(slots=True)
class _Kind:
    count: int
    #: the first message of its kind, and the likely cause
    example: str


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
        self._kinds: dict[str, _Kind] = {}
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
        parts = (event.kind, event.status and str(event.status), event.code)
        name = _one_line(" ".join(part for part in parts if part))
        if name not in self._kinds and len(self._kinds) >= KINDS:
            name = "of other kinds"
        if name in self._kinds:
            self._kinds[name].count += 1
            return
        cause = likely_cause(event.kind, event.status, event.code)
        example = _one_line(event.message) + (f" — {cause}" if cause else "")
        self._kinds[name] = _Kind(1, example)
        self._log.warning(
            "Call failed (%s), item %s, attempt %d, then %s: %s",
            *(name, _one_line(event.item_id), event.attempt, event.advice, example),
        )

    def _tell_change(self, event: Event) -> None:
        match event:
            case Parked():
                back = f", tried again in {_duration(event.for_s)}" if event.for_s is not None else ""
                what = f"{event.what} {event.name}"
                self._log.warning("Parked %s for everybody%s: %s", what, back, _one_line(event.reason))
            case Reopened():
                self._log.info("%s %s answers again", event.what, event.name)
            case Rewritten():
                instead = f"sent as {event.rename_to}" if event.rename_to else "left out"
                where = f"{event.model} at {event.endpoint}"
                self._log.info("%s does not take %s; it is %s from now on", where, event.drop, instead)
            case StateLost():
                reason = _one_line(event.reason)
                self._log.warning("Degraded, %s: the shared state is away: %s", event.policy, reason)
            case StateBack():
                self._log.info("The shared state is back after %s", _duration(event.away_s))

    def _end(self, event: RunEnded) -> None:
        took = _duration(self._now() - self._started)
        reason = f": {_one_line(event.reason)}" if event.reason else ""
        self._log.info("%s after %s%s. %s", event.state.capitalize(), took, reason, self._account())
        for name, kind in sorted(self._kinds.items(), key=lambda each: -each[1].count):
            self._log.info("%s calls failed (%s), such as: %s", f"{kind.count:,}", name, kind.example)
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
        failed = sum(kind.count for kind in self._kinds.values())
        calls = f"{failed:,} failed calls" if failed else ""
        return "; ".join(part for part in (outcomes, salvaged, calls, tokens, money) if part)


def _waited_for(key: str) -> str:
    """Return what a run waits for; limits are named by account, models and amount."""
    parts = key.split("/")
    if len(parts) != 3:
        return _WAITS.get(key, key)
    account, models, limit = parts
    return f"{limit} of account {account}" + ("" if models == "*" else f", models {models}")


def _one_line(text: str) -> str:
    # Escape codes and line breaks in a service's message must not forge lines of the log.
    shown = "".join(char if char.isprintable() else " " for char in text[: 2 * EXAMPLE_LENGTH])
    shown = " ".join(shown.split())
    return shown if len(shown) <= EXAMPLE_LENGTH else shown[: EXAMPLE_LENGTH - 1] + "…"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
