"""What the dispatcher is given to do: single items, and chains whose turns build on each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.items import (
    BadItem,
    Item,
    ItemError,
    Message,
    Outcome,
    Request,
    Result,
    RunRef,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Items of one group, in order; each is sent with the turns and replies before it."""

    items: Sequence[Item | BadItem]
    #: rows of the turns that earlier tries have finished, by index
    done: Mapping[int, Result]


Work = Item | BadItem | Chain


def turns(request: Request, earlier: Sequence[Message], result: Result) -> list[Message]:
    """Return the chain so far: the earlier turns, what this item asked, and what came back."""
    system = 1 if request.messages and request.messages[0]["role"] == "system" else 0
    own = request.messages[system + len(earlier) :]
    return [*earlier, *own, {"role": "assistant", "content": _said(result)}]


def _said(result: Result) -> str:
    if result.raw_output is not None:
        return result.raw_output
    return result.output if isinstance(result.output, str) else json.dumps(result.output, ensure_ascii=False)


def not_sent(item: Item | BadItem, why: str, kind: str, run: RunRef) -> Result:
    """Return the row of an item that was never tried."""
    error = ItemError(kind=kind, message=why)
    return Result(index=item.index, id=item.id, outcome=Outcome.UNSENT, error=error, run=run)


def broken(item: BadItem, run: RunRef, started_at: float) -> Result:
    """Return the row of a source row that is no item."""
    return Result(
        index=item.index,
        id=item.id,
        outcome=Outcome.UNRENDERED,
        error=item.error,
        started_at=started_at,
        run=run,
    )
