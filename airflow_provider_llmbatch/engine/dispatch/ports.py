"""What the dispatcher needs from other steps; :mod:`...run` plugs them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from airflow_provider_llmbatch.engine.exchange import Failure, Reply
from airflow_provider_llmbatch.engine.items import Cost, ItemError, Json, Message, Result, Usage


class Checked(Protocol):
    """What came of checking a reply's text."""

    @property
    def output(self) -> Json:
        """The value, when there is no problem."""

    @property
    def raw_output(self) -> str | None:
        """The text, when it says something else than the output."""

    @property
    def salvage(self) -> str | None:
        """Which step made the text readable."""

    @property
    def problem(self) -> ItemError | None:
        """Why there is no output."""


class Wire(Protocol):
    """One API's format; a module of :mod:`.wire` is one."""

    def encode(self, model: str, messages: Sequence[Message], params: Mapping[str, Json]) -> bytes:
        """Return a request's body."""

    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply | Failure:
        """Read whatever came back."""


class Store(Protocol):
    """Where rows and the ledger go."""

    def sent(self, index: int, attempt: int) -> None:
        """Note that a call is about to leave."""

    def add(self, result: Result) -> None:
        """Store a row."""

    def book(
        self,
        *,
        index: int,
        attempt: int,
        credential: str,
        endpoint: str,
        model: str,
        status: int | None,
        usage: Usage | None,
        cost: Cost,
        maybe_paid: bool,
        at: float,
        served_model: str,
        prompt: str,
    ) -> None:
        """Book a call that is over."""


Check = Callable[[str | None], Checked]
Price = Callable[[str, Usage], Cost]
CountTokens = Callable[[str], int]
CountMessages = Callable[[Sequence[Message]], int]
#: Takes the counted prompt tokens of a request and the usage of its reply.
Learn = Callable[[int, Usage], None]
#: Takes an item's messages, the reply that failed and what is wrong with it.
Reask = Callable[[Sequence[Message], str | None, ItemError], list[Message]]
