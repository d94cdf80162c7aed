"""The forms of requests and answers of the API."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from airflow_provider_llmbatch.engine.review.decision import WHY_LENGTH, Kind
from airflow_provider_llmbatch.engine.review.find import Order
from airflow_provider_llmbatch.engine.review.opening import MOST_TICKETS

#: Most rows of a page, and how many when nothing is said.
PAGE_MOST, PAGE = 500, 50
#: Most conflicts, refusals and tickets of a decision that are listed.
LISTED_MOST = 100


class Asked(BaseModel):
    """A request; what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid")


class TicketFilter(Asked):
    """Which tickets."""

    outcome: list[str] = []
    error: list[str] = []
    model: list[str] = []
    reason: list[str] = []
    decision: list[str] = []
    decided_by: str | None = None
    q: str = Field("", max_length=200)


class TicketQuery(TicketFilter):
    """Which tickets of a round, in which order, and which page of them."""

    map_index: int = -1
    round: int | None = Field(None, ge=1)
    order_by: Order = "index"
    limit: int = Field(PAGE, ge=1, le=PAGE_MOST)
    offset: int = Field(0, ge=0)


class DecisionsBody(Asked):
    """What to decide, about which tickets."""

    round: int = Field(ge=1)
    tickets: list[str] | None = Field(None, max_length=MOST_TICKETS)
    filter: TicketFilter | None = None
    kind: Kind
    why: str = Field("", max_length=WHY_LENGTH)
    model: str | None = None
    prompt: str | None = None
    max_tokens: int | None = Field(None, ge=1)
    output: Any = None
    replaces: str | None = None


class CheckBody(Asked):
    """An output that somebody is writing."""

    output: Any


class WakeBody(Asked):
    """Nothing."""


class PersonShape(BaseModel):
    """Who."""

    id: str
    name: str


class DecisionShape(BaseModel):
    """What was decided about a ticket."""

    id: str
    kind: Kind
    by: PersonShape
    at: str
    why: str
    model: str | None
    prompt: str | None
    max_tokens: int | None
    edited: bool


class DecisionWithOutput(DecisionShape):
    """The same, with what was written."""

    output: Any = None


class LoggedDecision(DecisionShape):
    """The same, with its tickets."""

    tickets: list[str]
    tickets_total: int


class TicketShape(BaseModel):
    """A ticket, without texts."""

    id: str
    round: int
    index: int
    item_id: str
    reason: str
    outcome: str
    error: str | None
    status: int | None
    code: str | None
    model: str | None
    prompt: str | None
    finish_reason: str | None
    attempts: int
    tokens: int
    group: str | None
    decision: DecisionShape | None


class TextsShape(BaseModel):
    """What was asked and what came back."""

    item: dict[str, Any]
    messages: list[dict[str, Any]] | None
    output: Any
    raw_output: str | None
    error: str | None
    refusal: str | None


class TicketDetail(TicketShape):
    """A ticket with its texts."""

    texts: TextsShape
    acceptable: bool
    why_not: str | None
    previous: str | None
    next: str | None
    history: list[DecisionWithOutput]


class TicketPage(BaseModel):
    """Some tickets."""

    total: int
    round: int
    tickets: list[TicketShape]


class RoundShape(BaseModel):
    """A round in short."""

    round: int
    state: Literal["open", "closed", "applied"]
    opened_at: str
    closed_at: str | None
    closed_by: Literal["all", "quorum", "deadline", "person"] | None
    tickets: int
    decided: int


class Standing(BaseModel):
    """How far a queue is."""

    state: Literal["open", "applying", "done"]
    round: int
    tickets: int
    decided: int
    needed: int


class QueueEntry(Standing):
    """A queue in the list of queues."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    opened_at: str
    deadline: str | None


class QueuePage(BaseModel):
    """Some queues."""

    total: int
    queues: list[QueueEntry]


class Choices(BaseModel):
    """What a retry may be sent to."""

    models: list[str]
    prompts: list[str]


class QueueShape(QueueEntry):
    """A queue."""

    model_config = ConfigDict(serialize_by_alias=True)

    default: Literal["retry", "accept", "skip", "leave", "fail"] | None
    rounds: list[RoundShape]
    max_rounds: int
    counts: dict[str, dict[str, int]]
    choices: Choices
    output_schema: dict[str, Any] | None = Field(serialization_alias="schema")
    may_decide: bool


class Conflict(BaseModel):
    """A ticket that somebody else has decided; without a decision, its round is closed."""

    ticket: str
    decision: DecisionShape | None


class Refusal(BaseModel):
    """A ticket that this cannot be decided of."""

    ticket: str
    why: str


class DecidedShape(BaseModel):
    """What became of a decision."""

    decided: int
    already: int
    conflicts: list[Conflict]
    conflicts_total: int
    refused: list[Refusal]
    refused_total: int
    queue: Standing
    resumed: bool


class DecisionPage(BaseModel):
    """Some decisions."""

    total: int
    decisions: list[LoggedDecision]


class Valid(BaseModel):
    """Whether an output satisfies the schema."""

    valid: bool
    why: str | None


class Woken(BaseModel):
    """Whether a task was woken, and why or why not."""

    resumed: bool
    why: str


class CredentialShape(BaseModel):
    """A credential, without its key."""

    id: str
    account: str


class LimitShape(BaseModel):
    """Limits of a group of models."""

    account: str
    models: list[str]
    requests_per_minute: int | None
    tokens_per_minute: int | None
    requests_per_day: int | None
    tokens_per_day: int | None
    max_in_flight: int | None


class ConnectionShape(BaseModel):
    """What a connection leads to."""

    conn_id: str
    base_url: str
    model: str | None
    credentials: list[CredentialShape]
    limits: list[LimitShape]
