"""
Items become chunks: contiguous, chains uncut, each with the hash of its rows.

The source is read twice: once to count, once to hash the rows of the chunks that resulted. What is kept
in between is 10 bytes an item.
"""

from __future__ import annotations

import itertools
import operator
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from airflow_provider_llmbatch.engine.identity import UniqueIds, digest_rows
from airflow_provider_llmbatch.engine.items import BadItem, Chunk, Item, PromptRef, Request, Result
from airflow_provider_llmbatch.engine.split.cut import Part, balance, fill, raised_budget
from airflow_provider_llmbatch.engine.summary import Plan
from airflow_provider_llmbatch.errors import ConfigurationError, InputError

#: ``sequential`` fills one chunk after the other; ``balanced`` makes chunks of nearly equal tokens.
Strategy = Literal["sequential", "balanced"]

MAX_CHUNKS = 16
#: Most items of a group: their number is kept in two bytes.
LONGEST_CHAIN = 65_535


class RowLike(Protocol):
    """A row as the sources yield them."""

    @property
    def item(self) -> Item | BadItem: ...  # noqa: D102

    @property
    def offset(self) -> int: ...  # noqa: D102

    @property
    def raw(self) -> bytes: ...  # noqa: D102


Rows = Callable[[], Iterable[RowLike]]


def plan(
    rows: Rows,
    compose: Callable[[Item], Request | Result],
    *,
    ids: UniqueIds,
    source_uri: str,
    prompt: PromptRef,
    model: str,
    token_budget: int,
    max_chunks: int = MAX_CHUNKS,
    strategy: Strategy = "sequential",
    fixed_tokens: int = 0,
    on_note: Callable[[str], None] = lambda _: None,
) -> Plan:
    """
    Read a source and cut it into chunks; what it costs is added by :func:`.estimate`.

    :param rows: reads the source from its start; called twice.
    :param compose: makes an item's request.
    :param ids: refuses ids that come twice.
    :param token_budget: tokens of a chunk, in and out.
    :param max_chunks: most chunks; the budget is raised to keep to it.
    :param fixed_tokens: input tokens that every request has; they do not add up along a chain.
    :param on_note: is told, in a sentence, what a person should know about the plan.
    :raises InputError: for an empty source, repeated ids and scattered groups.
    """
    if strategy not in ("sequential", "balanced"):
        raise ConfigurationError(f"The strategy is {strategy!r}; set 'sequential' or 'balanced'.")
    if token_budget < 1 or max_chunks < 1:
        raise ConfigurationError(
            f"token_budget is {token_budget} and max_chunks is {max_chunks}; both must be at least 1."
        )
    tally = _Tally(compose, ids, source_uri, fixed_tokens)
    for row in rows():
        tally.add(row.item)
    if not tally.rows:
        raise InputError(f"{source_uri} holds no items; was the task that writes it finished?")
    parts = _cut(tally.sizes, token_budget, max_chunks, strategy, on_note)
    chunks = tuple(_chunks(iter(rows()), tally, parts, source_uri))
    return Plan(
        source=source_uri,
        items=tally.rows,
        bad_items=tally.bad_items,
        prompt=prompt,
        model=model,
        prompt_tokens=sum(chunk.prompt_tokens for chunk in chunks),
        output_tokens=sum(chunk.output_tokens for chunk in chunks),
        chunks=chunks,
    )


@dataclass(slots=True)
class _Tally:
    """Counts items into units that must not be cut: single items, and chains."""

    compose: Callable[[Item], Request | Result]
    ids: UniqueIds
    source_uri: str
    fixed_tokens: int
    rows: int = 0
    bad_items: int = 0
    items: array[int] = field(default_factory=lambda: array("H"))
    prompt_tokens: array[int] = field(default_factory=lambda: array("I"))
    output_tokens: array[int] = field(default_factory=lambda: array("I"))
    #: the last grouped item, while its chain can go on
    turn: Item | None = None
    #: tokens that the chain's next turn repeats
    carried: int = 0

    def sizes(self) -> Iterable[int]:
        """Return the tokens of each unit."""
        return map(operator.add, self.prompt_tokens, self.output_tokens)

    def add(self, item: Item | BadItem) -> None:
        self.ids.add(item.id, item.index)
        self.rows += 1
        if isinstance(item, BadItem):
            self.bad_items += 1
            # what group it was meant for is not known, so it stays with the chain before it
            self._count(0, 0, joins=self.turn is not None)
            return
        joins = self._follows(item)
        request = self.compose(item)
        if isinstance(request, Result):
            self._count(0, 0, joins=joins)
            return
        self._count(request.prompt_tokens + self.carried, request.output_tokens, joins=joins)
        if item.group is not None:
            self.carried += max(0, request.prompt_tokens - self.fixed_tokens) + request.output_tokens

    def _follows(self, item: Item) -> bool:
        """Return whether the item goes on with the chain before it, and open its own chain if not."""
        before, self.turn = self.turn, item if item.group is not None else None
        if before is None or item.group != before.group:
            self.carried = 0
            if item.group is not None:
                self.ids.start_group(item.group, item.index)
            return False
        if (item.seq or 0) <= (before.seq or 0):
            raise InputError(
                f"{self.source_uri}: items {before.index} and {item.index} (counted from 0) of group "
                f"{item.group!r} have seq {before.seq} and {item.seq}; order each group's rows by seq."
            )
        return True

    def _count(self, prompt_tokens: int, output_tokens: int, *, joins: bool) -> None:
        if joins:
            if self.items[-1] == LONGEST_CHAIN:
                raise InputError(
                    f"{self.source_uri}: a group has more than {LONGEST_CHAIN:,} items; cut it into several."
                )
            self.items[-1] += 1
            self.prompt_tokens[-1] += prompt_tokens
            self.output_tokens[-1] += output_tokens
        else:
            self.items.append(1)
            self.prompt_tokens.append(prompt_tokens)
            self.output_tokens.append(output_tokens)


def _cut(
    sizes: Callable[[], Iterable[int]],
    token_budget: int,
    max_chunks: int,
    strategy: Strategy,
    on_note: Callable[[str], None],
) -> list[Part]:
    if strategy == "balanced":
        parts = balance(sizes, token_budget, max_chunks)
        over = [part.tokens for part in parts if part.tokens > token_budget and part.units > 1]
        if over:
            on_note(_raised(token_budget, max(over), max_chunks))
        return parts
    budget = raised_budget(sizes, token_budget, max_chunks)
    if budget > token_budget:
        on_note(_raised(token_budget, budget, max_chunks))
    return fill(sizes, budget)


def _raised(token_budget: int, budget: int, max_chunks: int) -> str:
    return (
        f"The token budget of {token_budget:,} would need more than {max_chunks} chunks, so chunks of up to "
        f"{budget:,} tokens were made; raise max_chunks to keep to the budget."
    )


def _chunks(
    rows: Iterator[RowLike], tally: _Tally, parts: Iterable[Part], source_uri: str
) -> Iterator[Chunk]:
    unit = start = 0
    for number, part in enumerate(parts):
        span = slice(unit, unit + part.units)
        stop = start + sum(tally.items[span])
        block = _exactly(rows, stop - start, source_uri)
        first = next(block)
        yield Chunk(
            number=number,
            start=start,
            stop=stop,
            offset=first.offset,
            sha=digest_rows(row.raw for row in itertools.chain((first,), block)),
            prompt_tokens=sum(tally.prompt_tokens[span]),
            output_tokens=sum(tally.output_tokens[span]),
        )
        unit, start = span.stop, stop
    if next(rows, None) is not None:
        raise _changed(source_uri)


def _exactly(rows: Iterator[RowLike], count: int, source_uri: str) -> Iterator[RowLike]:
    for _ in range(count):
        row = next(rows, None)
        if row is None:
            raise _changed(source_uri)
        yield row


def _changed(source_uri: str) -> InputError:
    return InputError(f"{source_uri} changed while it was being split; split it again when it is complete.")
