"""What the log of a rollout says: where it stands, its steps, its rounds, and where live answers are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from airflow_provider_llmbatch.engine.journal import Person
from airflow_provider_llmbatch.engine.rollout.gate import Action, Move
from airflow_provider_llmbatch.engine.rollout.terms import Rules, Terms
from airflow_provider_llmbatch.engine.rollout.verdict import Comparison

State = Literal["running", "paused"]
#: What a person can do.
Act = Literal["pause", "resume", "promote"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a rollout stands after its steps."""

    terms: Terms
    #: those of the last step
    rules: Rules
    #: steps so far
    number: int
    state: State
    #: share of the units that get the candidate now; 0 while paused
    rate: float
    #: the rate before it was paused
    rung: float
    #: rounds so far
    rounds: int = 0
    #: by metric, in how many rounds running it was worse
    streaks: Mapping[str, int] = field(default_factory=dict)
    #: keys of the live answers that earlier rounds have used
    used: frozenset[str] = frozenset()
    #: Unix seconds since which the candidate has its share without a break
    since: float = 0.0
    #: the last step, in words
    last: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Answers to production items that were given under a rollout."""

    key: str
    result_path: str
    chunk: int
    #: share of the units that should have the candidate there
    rate: float
    #: Unix seconds at which it began
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOf:
    """A round as it was logged."""

    number: int
    #: Unix seconds
    at: float
    occasion: str
    move: Move
    comparisons: tuple[Comparison, ...]
    mismatch_p: float | None
    #: name of the file of its grades in the rollout's folder; empty for rounds of before they said so
    grades: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step as it was logged."""

    #: from 1
    number: int
    #: Unix seconds
    at: float
    action: Literal["open"] | Action | Act
    #: where the rollout stood after it
    state: State
    rate: float
    why: str = ""
    #: who did it; nobody for what a round has decided
    by: Person = field(default_factory=Person)
    #: the round that decided; None when a person did
    round: int | None = None
    #: whether notifiers are to be told of it when a task of the rollout runs
    is_news: bool = False
