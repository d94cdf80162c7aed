"""
What comes back from a service, and what can be done about it.

Standard library only, like :mod:`.items`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_provider_llmbatch.engine.items import ItemError, Outcome, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A decoded answer of the service with status 2xx and a message in it."""

    #: the model's text; None when it sent none
    text: str | None
    refusal: str | None
    finish_reason: str | None
    #: None when the service left it out
    usage: Usage | None
    model: str | None
    request_id: str | None
    #: thought that came in a field of its own, kept aside
    reasoning: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A call that brought no usable answer."""

    #: ``http`` (an error status), ``timeout``, ``connect``, ``reset``, ``malformed`` (2xx without a
    #: usable body), ``too_large`` (body over the ceiling)
    kind: Literal["http", "timeout", "connect", "reset", "malformed", "too_large"]
    message: str
    status: int | None = None
    #: the service's ``error.code``, ``error.type`` and ``error.param``
    code: str | None = None
    type: str | None = None
    param: str | None = None
    #: whether the service may have worked, and charged, for this call
    maybe_paid: bool = False
    request_id: str | None = None
    #: keys of the body, for messages about foreign shapes
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Send it again after ``delay_s``."""

    delay_s: float
    #: False for throttling: it says nothing about the item
    uses_try: bool = True
    #: everybody on this account and model waits as well
    shared: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCredential:
    """Park the credential and use the next one."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """Take the next route after the tries here are used up."""

    reason: str
    #: how the item ends when there is no other route
    otherwise: Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Change the request's parameters and send it again; learnt for the endpoint and model."""

    #: parameter to drop
    drop: str
    #: parameter that takes the dropped one's value
    rename_to: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enlarge:
    """Send it once more with a larger output cap."""

    #: how the item ends when that is not possible
    otherwise: Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stop the run, resumable: no item can succeed until somebody mends the cause."""

    reason: str
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """The item ends here."""

    outcome: Outcome
    error: ItemError


Advice = Retry | OtherCredential | Fallback | Rewrite | Enlarge | Stop | Final
