"""A decision: what a person wants to become of some tickets. It is logged once and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from airflow_provider_llmbatch.engine.items import Json
from airflow_provider_llmbatch.engine.journal import Person
from airflow_provider_llmbatch.errors import InputError

Kind = Literal["retry", "edit", "accept", "skip"]
#: What becomes of tickets that nobody has decided: a decision, nothing, or the failure of the task.
Default = Literal["retry", "accept", "skip", "leave", "fail"]

KINDS: tuple[Kind, ...] = get_args(Kind)
#: Characters of a reason.
WHY_LENGTH = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What shall become of an item."""

    kind: Kind
    why: str = ""
    #: of a retry: what to ask instead; None leaves it as it was
    model: str | None = None
    prompt: str | None = None
    max_tokens: int | None = None
    #: of an edit: the output
    output: Json = None

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        changes = (self.model, self.prompt, self.max_tokens)
        if self.kind not in KINDS:
            raise InputError(f"The decision {self.kind!r} is not known; take one of {', '.join(KINDS)}.")
        if self.kind != "retry" and any(change is not None for change in changes):
            raise InputError(f"A decision to {self.kind} takes no model, prompt or max_tokens.")
        if self.kind != "edit" and self.output is not None:
            raise InputError(f"A decision to {self.kind} takes no output; only an edit does.")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InputError(f"max_tokens is {self.max_tokens}; give a whole number from 1.")
        if len(self.why) > WHY_LENGTH:
            raise InputError(f"The reason has {len(self.why):,} characters, {WHY_LENGTH:,} at most.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A wish of somebody about some tickets."""

    id: str
    wish: Wish
    by: Person
    #: Unix seconds
    at: float
    tickets: tuple[str, ...]
    #: the decision that this one takes the place of
    replaces: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        wish = self.wish
        return {
            "id": self.id,
            "kind": wish.kind,
            "why": wish.why,
            "model": wish.model,
            "prompt": wish.prompt,
            "max_tokens": wish.max_tokens,
            "output": wish.output,
            "by": {"id": self.by.id, "name": self.by.name},
            "at": self.at,
            "tickets": list(self.tickets),
            "replaces": self.replaces,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Decision:
        """
        Read what :meth:`to_json` wrote.

        :raises KeyError: when a field is missing.
        """
        return cls(
            id=data["id"],
            wish=Wish(
                kind=cast(Kind, data["kind"]),
                why=data["why"],
                model=data["model"],
                prompt=data["prompt"],
                max_tokens=data["max_tokens"],
                output=data["output"],
            ),
            by=Person(id=data["by"]["id"], name=data["by"]["name"]),
            at=data["at"],
            tickets=tuple(data["tickets"]),
            replaces=data["replaces"],
        )
