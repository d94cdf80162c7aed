"""What a report cannot know, in whole sentences: better said than guessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_provider_llmbatch.engine.report.inert import inert
from airflow_provider_llmbatch.engine.report.numbers import count
from airflow_provider_llmbatch.engine.summary import Manifest, Plan


def unknowns(parts: Sequence[Manifest], plan: Plan | None) -> Iterator[str]:
    """Yield what ``parts`` and ``plan`` leave open."""
    yield from _unknown_money(parts)
    yield from _unknown_times(parts)
    yield from _unknown_parts(parts, plan)


def _unknown_money(parts: Sequence[Manifest]) -> Iterator[str]:
    if any(part.cost.unpriced for part in parts):
        models = ", ".join(sorted({inert(part.model) for part in parts if part.cost.unpriced and part.model}))
        named = f" ({models})" if models else ""
        yield f"Some calls have no known price{named}, so the money is a lower bound."
    if any(part.usage.estimated for part in parts):
        yield "The service left token counts out of some replies; those are our own count."
    if paid := sum(part.possible_double_paid for part in parts):
        calls = f"{count(paid)} call{'s' if paid > 1 else ''}"
        yield f"{calls} may have been charged without leaving a reply; that is not in the money."


def _unknown_times(parts: Sequence[Manifest]) -> Iterator[str]:
    ended = [part for part in parts if part.state != "running"]
    if len(ended) < len(parts):
        yield "Latency and limits are those of chunks that have ended; the others tell when they have."
    silent = [part.chunk for part in ended if not part.latency_ms]
    if silent:
        yield f"No latency is known for {_chunks(silent)}."
    if len(ended) - len(silent) > 1:
        yield (
            "Percentiles of several chunks cannot be added up. The range of the chunks' own is shown; "
            "that of all calls lies inside of it."
        )
    if any(not part.started_at or not part.ended_at for part in ended):
        yield "Some chunks do not say when they ran, so the duration is that of the others."


def _unknown_parts(parts: Sequence[Manifest], plan: Plan | None) -> Iterator[str]:
    if plan is None:
        yield "No plan was given, so there is nothing to compare tokens and money with."
        return
    done = {part.chunk: part.items for part in parts}
    missing = [chunk.number for chunk in plan.chunks if chunk.number not in done]
    if missing:
        yield (
            f"{_chunks(missing).capitalize()} of the plan's {len(plan.chunks)} did not report; tokens are "
            "compared with the plan of the others, money is not compared."
        )
    for chunk in plan.chunks:
        if done.get(chunk.number, chunk.items) != chunk.items:
            yield (
                f"Chunk {chunk.number} dispatched {count(done[chunk.number])} of the {count(chunk.items)} "
                "items that the plan has for it; the comparison is with all of them."
            )


def _chunks(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:10])
    more = f" and {len(numbers) - 10} more" if len(numbers) > 10 else ""
    return f"chunk{'s' if len(numbers) > 1 else ''} {shown}{more}"
