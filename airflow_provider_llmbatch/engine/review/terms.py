"""What holds for a round of review: when it ends, what happens to the rest, what may be asked instead."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from airflow_provider_llmbatch.engine.items import Json
from airflow_provider_llmbatch.engine.review.decision import Default
from airflow_provider_llmbatch.errors import InputError

#: What ended a round: all tickets or enough of them were decided, time ran out, or a person said so.
ClosedBy = Literal["all", "quorum", "deadline", "person"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Set when a round is opened, and never changed."""

    #: share of the tickets whose decisions are enough
    quorum: float = 1.0
    #: Unix seconds after which nobody is waited for; None waits for ever
    deadline: float | None = None
    #: what becomes of undecided tickets; None where there is neither a quorum nor a deadline
    default: Default | None = None
    max_rounds: int = 1
    #: models and prompts that a retry may be sent with instead
    models: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    #: ids and names of those who may decide; empty: whoever may answer for the DAG
    assigned: tuple[tuple[str, str], ...] = ()
    #: JSON schema of the outputs; None for plain text
    schema: Mapping[str, Json] | None = field(default=None, repr=False)

    def needed(self, tickets: int) -> int:
        """Return how many decisions are enough."""
        return math.ceil(self.quorum * tickets - 1e-9)

    def refuse(self, *, model: str | None, prompt: str | None) -> None:
        """
        Refuse what a retry cannot be sent with.

        :raises InputError: when it is not among the choices.
        """
        for name, value, choices in (("model", model, self.models), ("prompt", prompt, self.prompts)):
            if value is not None and value not in choices:
                known = ", ".join(choices) or "nothing else"
                raise InputError(f"The {name} {value!r} is not offered for a retry; there is {known}.")

    def to_json(self) -> dict[str, Any]:
        """Return them as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Terms:
        """Read what :meth:`to_json` wrote."""
        return cls(
            quorum=data["quorum"],
            deadline=data["deadline"],
            default=cast("Default | None", data["default"]),
            max_rounds=data["max_rounds"],
            models=tuple(data["models"]),
            prompts=tuple(data["prompts"]),
            assigned=tuple((id, name) for id, name in data["assigned"]),
            schema=data["schema"],
        )
