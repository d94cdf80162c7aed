"""The forms of requests and answers about rollouts."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from airflow_provider_llmbatch.engine.rollout.standing import Act, State
from airflow_provider_llmbatch.engine.rollout.steps import WHY_LENGTH
from airflow_provider_llmbatch.engine.rollout.verdict import Verdict
from airflow_provider_llmbatch.plugins.api.shapes import Asked, PersonShape


class ActBody(Asked):
    """What a person wants of a rollout."""

    act: Act
    #: of a promotion: the next rung, or all units
    to: Literal["next", "all"] = "next"
    why: str = Field("", max_length=WHY_LENGTH)
    #: the last step that they have seen
    after: int | None = Field(None, ge=1)


class VersionShape(BaseModel):
    """What an arm asks with."""

    prompt: str
    sha: str
    params: dict[str, Any]


class StepShape(BaseModel):
    """A step."""

    number: int
    at: str
    action: Literal["open", "hold", "promote", "pause", "resume"]
    state: State
    rate: float
    round: int | None
    by: PersonShape | None
    why: str


class RolloutEntry(BaseModel):
    """A rollout in the list of rollouts."""

    dag_id: str
    name: str
    state: State
    rate: float
    #: rounds, and steps
    rounds: int
    number: int
    base: VersionShape
    candidate: VersionShape
    unit: str
    last: StepShape


class RolloutList(BaseModel):
    """Some rollouts."""

    total: int
    rollouts: list[RolloutEntry]


class RolloutShape(RolloutEntry):
    """A rollout."""

    ladder: list[float]
    #: None at the top
    next_rate: float | None
    #: the rate before it was paused
    rung: float
    promotes: bool
    min_new: int
    patience: int
    streaks: dict[str, int]
    steps: list[StepShape]
    may_act: bool


class RefusedAct(BaseModel):
    """Why something was not done, and how the rollout stands."""

    detail: str
    rollout: RolloutShape


class ComparisonShape(BaseModel):
    """One metric of one round."""

    metric: str
    verdict: Verdict
    paired: bool
    base: int
    candidate: int
    missing_base: int
    missing_candidate: int
    mean_base: float | None
    mean_candidate: float | None
    threshold: float | None
    effect: float | None
    low: float | None
    high: float | None
    p: float | None
    p_holm: float | None
    power: float | None
    ks_distance: float | None
    ks_p: float | None
    ks_method: str
    note: str


class RoundShape(BaseModel):
    """A round."""

    number: int
    at: str
    action: Literal["hold", "promote", "pause"]
    rate: float
    why: str
    mismatch_p: float | None
    comparisons: list[ComparisonShape]


class RoundPage(BaseModel):
    """Some rounds."""

    total: int
    rounds: list[RoundShape]


class DistributionShape(BaseModel):
    """How the scores of a metric are spread; without edges there are none."""

    metric: str
    edges: list[float]
    base: list[int]
    candidate: list[int]


class Distributions(BaseModel):
    """The distributions of a round."""

    distributions: list[DistributionShape]


class AnswerShape(BaseModel):
    """What one arm has answered."""

    outcome: str
    #: what can be used of it, or else what the model has said; None when it has said nothing
    text: str | None
    error: str | None
    model: str | None


class PairShape(BaseModel):
    """An item that both arms have answered."""

    id: str
    #: what was asked and what is right; None where that is not known here
    question: str | None
    reference: str | None
    base: float
    candidate: float
    effect: float
    #: None where the answer is no longer there
    base_answer: AnswerShape | None
    candidate_answer: AnswerShape | None


class PairPage(BaseModel):
    """Some pairs."""

    total: int
    pairs: list[PairShape]
    #: why questions and references are not shown; None when they are
    why_not: str | None
