"""
The nouns of the engine: frozen values that the steps hand to each other.

Standard library only. Durations are float seconds unless a name ends in ``_ms``; money is
:class:`~decimal.Decimal` US dollars; times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

#: Version of the result, ledger, plan and manifest formats.
SCHEMA_VERSION = 1

Json = Any
Message = Mapping[str, Any]


class Outcome(StrEnum):
    """How an item ended. Every item ends in exactly one of these."""

    OK = "ok"
    INVALID_OUTPUT = "invalid_output"  #: the reply never satisfied the schema
    TRUNCATED = "truncated"  #: cut at the output cap; never taken for ok
    REFUSED = "refused"  #: the model declined
    CONTENT_FILTERED = "content_filtered"  #: the service's filter stopped it
    TOO_LONG = "too_long"  #: larger than the model's window or the whole limit
    BAD_REQUEST = "bad_request"  #: the service rejects this request as it stands
    UNRENDERED = "unrendered"  #: no request could be made of the row
    EXHAUSTED = "exhausted"  #: retryable failures used up the tries or the wait
    UNSENT = "unsent"  #: never sent: budget, stop, no credential, broken chain
    EDITED = "edited"  #: a person wrote the output
    ACCEPTED = "accepted"  #: a person took the output as it is
    SKIPPED = "skipped"  #: a person gave the item up

    @property
    def is_good(self) -> bool:
        """Whether the item has an output that can be used."""
        return self in _GOOD

    @property
    def is_final(self) -> bool:
        """Whether a resumed run leaves the item alone."""
        return self not in _UNFINISHED

    @property
    def is_reviewable(self) -> bool:
        """Whether a person can still change how the item ends."""
        return self not in _GOOD and self is not Outcome.SKIPPED

    @property
    def is_reusable(self) -> bool:
        """Whether the output may answer the same question elsewhere."""
        return self is Outcome.OK


_GOOD = frozenset({Outcome.OK, Outcome.EDITED, Outcome.ACCEPTED})
_UNFINISHED = frozenset({Outcome.EXHAUSTED, Outcome.UNSENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One row of the input: exactly one of ``vars``, ``prompt`` and ``messages`` is set."""

    #: position in the source, from 0
    index: int
    #: unique within the source; ``#<row>`` when the row names none
    id: str
    #: prompt variables
    vars: Mapping[str, Json] | None = None
    #: the user's text as it stands
    prompt: str | None = None
    #: a conversation
    messages: Sequence[Message] | None = None
    #: request parameters of this item, over those of the prompt
    params: Mapping[str, Json] = field(default_factory=dict)
    #: the right answer, for grading
    reference: Json = None
    #: name of the chain the item belongs to
    group: str | None = None
    #: place in the chain
    seq: int | None = None
    #: carried into the result unread
    metadata: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemError:
    """Why an item failed, in the words of a result row."""

    #: short name from a closed set, such as ``http_error`` or ``schema``
    kind: str
    #: what a person reads; redacted and cut
    message: str
    #: HTTP status, when there was one
    status: int | None = None
    #: the service's own error code, when it gave one
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BadItem:
    """A row of the source that is no item; it becomes an ``unrendered`` result."""

    index: int
    id: str
    error: ItemError


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRef:
    """Which prompt version stands behind a request."""

    name: str
    version: str
    #: SHA-256 of the prompt file's content, hex
    sha: str

    def __str__(self) -> str:
        """Return ``name@version``."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is sent for an item, ready to be counted and reserved."""

    index: int
    id: str
    model: str
    messages: Sequence[Message]
    #: wire parameters: temperature, max_tokens, response_format, …
    params: Mapping[str, Json]
    prompt: PromptRef
    #: counted tokens of the whole input: messages, tools, schema, chat overhead
    prompt_tokens: int
    #: tokens reserved for the output
    output_tokens: int
    metadata: Json = None
    variant: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens that the request reserves."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one or several calls. ``cached`` is part of ``prompt``, ``reasoning`` of ``completion``."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    #: whether any of it is our count instead of the service's word
    estimated: bool = False

    @property
    def total(self) -> int:
        """All tokens, in and out."""
        return self.prompt + self.completion

    def __add__(self, other: Usage) -> Usage:
        """Return the sum; an estimate makes the sum an estimate."""
        return Usage(
            prompt=self.prompt + other.prompt,
            cached=self.cached + other.cached,
            completion=self.completion + other.completion,
            reasoning=self.reasoning + other.reasoning,
            estimated=self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Money of one or several calls."""

    usd: Decimal = Decimal(0)
    #: whether any call had no known price; ``usd`` is then a lower bound
    unpriced: bool = False

    def __add__(self, other: Cost) -> Cost:
        """Return the sum; an unpriced part makes the sum a lower bound."""
        return Cost(usd=self.usd + other.usd, unpriced=self.unpriced or other.unpriced)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRef:
    """Where a result was made."""

    dag: str = ""
    run: str = ""
    task: str = ""
    map_index: int = -1
    try_number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The one row an item leaves behind."""

    index: int
    id: str
    outcome: Outcome
    output: Json = None
    #: the model's text, when it differs from ``output``
    raw_output: str | None = None
    #: which salvage step made the text readable
    salvage: str | None = None
    error: ItemError | None = None
    served_model: str | None = None
    endpoint: str | None = None
    credential: str | None = None
    request_id: str | None = None
    prompt: PromptRef | None = None
    variant: str | None = None
    attempts: int = 0
    usage: Usage = Usage()
    cost: Cost = Cost()
    #: US dollars that the answer had cost where it was taken over from; None when it was asked for here
    saved_usd: Decimal | None = None
    #: waiting for limits and retries
    queue_ms: float = 0.0
    #: the last call, from the first byte sent to the last received
    call_ms: float = 0.0
    finish_reason: str | None = None
    started_at: float = 0.0
    run: RunRef = RunRef()
    #: review round; 0 is the first dispatch
    round: int = 0
    metadata: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A run of items that one task dispatches."""

    number: int
    #: first index, and one past the last
    start: int
    stop: int
    #: where its first row begins in the source; bytes for JSONL, rows otherwise
    offset: int
    #: SHA-256 of the rows' content, hex
    sha: str
    prompt_tokens: int = 0
    output_tokens: int = 0
    #: items of the chunk that this is the pilot of; 0 for a whole chunk
    pilot_of: int = 0
    #: SHA-256 of the rows of that chunk; "" for a whole chunk
    whole_sha: str = ""

    @property
    def items(self) -> int:
        """How many items it holds."""
        return self.stop - self.start
