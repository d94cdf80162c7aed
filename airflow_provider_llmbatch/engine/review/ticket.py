"""A ticket: an item that waits for a person, as a pointer to its texts and fields to search by."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_llmbatch.engine.items import Outcome, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One item of a round; it holds no text of it."""

    #: which of the round's result folders its row is in
    folder: int
    chunk: int
    index: int
    item_id: str
    #: why it was opened: ``failed``, ``uncertain`` or ``sample``
    reason: str
    outcome: Outcome
    error: str | None
    status: int | None
    code: str | None
    model: str | None
    #: ``name@version``
    prompt: str | None
    finish_reason: str | None
    attempts: int
    tokens: int
    group: str | None
    #: whether what the model said satisfies the schema as it stands
    acceptable: bool
    #: which of the round's files holds its texts, and at which byte
    file: int
    offset: int

    @property
    def id(self) -> str:
        """Its name within the round."""
        return f"{self.folder}-{self.index}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {field.name: getattr(self, field.name) for field in _FIELDS}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Ticket:
        """
        Read what :meth:`to_json` wrote.

        :raises KeyError: when a field is missing.
        :raises ValueError: for an unknown outcome.
        """
        values = {field.name: data[field.name] for field in _FIELDS}
        values["outcome"] = Outcome(values["outcome"])
        return cls(**values)


_FIELDS = dataclasses.fields(Ticket)


def ticket_of(
    result: Result,
    *,
    folder: int,
    chunk: int,
    reason: str,
    group: str | None,
    acceptable: bool,
    place: tuple[int, int],
) -> Ticket:
    """
    Return the ticket of a row.

    :param place: number of the file with the texts, and the byte there.
    """
    error = result.error
    return Ticket(
        folder=folder,
        chunk=chunk,
        index=result.index,
        item_id=result.id,
        reason=reason,
        outcome=result.outcome,
        error=error.kind if error else None,
        status=error.status if error else None,
        code=error.code if error else None,
        model=result.served_model,
        prompt=str(result.prompt) if result.prompt else None,
        finish_reason=result.finish_reason,
        attempts=result.attempts,
        tokens=result.usage.total,
        group=group,
        acceptable=acceptable,
        file=place[0],
        offset=place[1],
    )
