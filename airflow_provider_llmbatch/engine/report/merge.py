"""Add manifests up to a report, and refuse what does not add up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from decimal import Decimal

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Result, Usage
from airflow_provider_llmbatch.engine.report.account import Example, HeatMap, Planned, Report
from airflow_provider_llmbatch.engine.report.inert import inert
from airflow_provider_llmbatch.engine.report.unknowns import unknowns
from airflow_provider_llmbatch.engine.summary import Manifest, Plan, State, total
from airflow_provider_llmbatch.errors import InputError

#: failed items that are shown for each outcome
EXAMPLES_PER_OUTCOME = 3
#: longest message and longest output of an example, in characters
MESSAGE_LENGTH = 300
OUTPUT_LENGTH = 200


def merge(
    manifests: Sequence[Manifest],
    *,
    plan: Plan | None = None,
    results: Iterable[Result] = (),
    heat: HeatMap | None = None,
    title: str = "LLM batch",
) -> Report:
    """
    Add up the report of a batch.

    :param manifests: of its dispatches, in any order.
    :param plan: what the split promised, to compare with.
    :param results: rows to take examples of failures from; no more are read than needed.
    :param heat: how long calls took over time.
    :param title: heads the report.
    :raises InputError: when a manifest does not add up, comes twice, or is not of this plan.
    """
    _refuse_wrong_sums(manifests)
    _refuse_duplicates(manifests)
    parts = tuple(sorted(manifests, key=lambda each: (each.chunk, each.result_path)))
    if plan is not None:
        _refuse_foreign_parts(parts, plan)
    counts = total(part.counts for part in parts)
    return Report(
        title=title,
        state=_state({part.state for part in parts}),
        items=sum(part.items for part in parts),
        counts={outcome: counts[outcome] for outcome in Outcome if counts.get(outcome)},
        resumed=sum(part.resumed for part in parts),
        usage=sum((part.usage for part in parts), Usage()),
        cost=sum((part.cost for part in parts), Cost()),
        saved_usd=sum((part.saved_usd for part in parts), Decimal(0)),
        possible_double_paid=sum(part.possible_double_paid for part in parts),
        parts=parts,
        planned=None if plan is None else _planned(parts, plan),
        examples=tuple(_examples(results, counts)),
        heat=heat,
        unknowns=tuple(unknowns(parts, plan)),
    )


def _state(states: Set[State]) -> State:
    """Return the state of the whole: that of the part that is furthest from its end."""
    order: tuple[State, ...] = ("running", "stopped", "complete")
    return next(state for state in order if state in states)


def _where(manifest: Manifest) -> str:
    return f"The manifest of chunk {manifest.chunk} ({inert(manifest.result_path)})"


def _refuse_wrong_sums(manifests: Sequence[Manifest]) -> None:
    if not manifests:
        raise InputError("There is no manifest to report on; give those that dispatch tasks returned.")
    for manifest in manifests:
        found = sum(manifest.counts.values())
        if found != manifest.items or min(manifest.counts.values(), default=0) < 0:
            raise InputError(
                f"{_where(manifest)} does not add up: its outcomes make {found}, its items {manifest.items}. "
                "It was changed or cut after the dispatch; take it from the task's return value."
            )
        if not 0 <= manifest.resumed <= manifest.items:
            raise InputError(
                f"{_where(manifest)} does not add up: {manifest.resumed} resumed of {manifest.items} items. "
                "It was changed after the dispatch; take it from the task's return value."
            )


def _refuse_duplicates(manifests: Sequence[Manifest]) -> None:
    seen: set[tuple[str, int]] = set()
    for manifest in manifests:
        # The same rows under another path are as wrong as the same path twice.
        keys = {(name, manifest.chunk) for name in (manifest.result_path, manifest.fingerprint) if name}
        if keys & seen:
            raise InputError(
                f"{_where(manifest)} comes twice, so its items would be counted twice. "
                "Give one manifest for each chunk: that of its last try."
            )
        seen |= keys


def _refuse_foreign_parts(parts: Sequence[Manifest], plan: Plan) -> None:
    numbers = {chunk.number for chunk in plan.chunks}
    for part in parts:
        if part.chunk not in numbers:
            raise InputError(f"{_where(part)} is not of this plan, which has {len(numbers)} chunks.")
        if part.prompt is not None and part.prompt.sha != plan.prompt.sha:
            raise InputError(
                f"{_where(part)} was made with the prompt {part.prompt} ({part.prompt.sha[:12]}), the plan "
                f"with {plan.prompt} ({plan.prompt.sha[:12]}). Give the plan that it was dispatched from."
            )


def _planned(parts: Sequence[Manifest], plan: Plan) -> Planned:
    done = {part.chunk for part in parts}
    chunks = [chunk for chunk in plan.chunks if chunk.number in done]
    if len(chunks) == len(plan.chunks):
        return Planned(
            items=plan.items,
            prompt_tokens=plan.prompt_tokens,
            output_tokens=plan.output_tokens,
            estimate=plan.estimate,
        )
    return Planned(
        items=sum(chunk.items for chunk in chunks),
        prompt_tokens=sum(chunk.prompt_tokens for chunk in chunks),
        output_tokens=sum(chunk.output_tokens for chunk in chunks),
        estimate=None,
    )


def _examples(results: Iterable[Result], counts: Mapping[Outcome, int]) -> list[Example]:
    wanted = Counter(
        {
            outcome: min(number, EXAMPLES_PER_OUTCOME)
            for outcome, number in counts.items()
            if not outcome.is_good
        }
    )
    found: list[Example] = []
    if not wanted.total():
        return found
    for result in results:
        if wanted[result.outcome] > 0:
            wanted[result.outcome] -= 1
            found.append(_example(result))
            if not wanted.total():
                break
    order = list(Outcome)
    return sorted(found, key=lambda example: order.index(example.outcome))


def _example(result: Result) -> Example:
    error = result.error
    output = result.raw_output if result.raw_output is not None else result.output
    if not isinstance(output, str):
        output = "" if output is None else json.dumps(output, ensure_ascii=False)
    return Example(
        id=inert(result.id, 80),
        outcome=result.outcome,
        message=inert(error.message, MESSAGE_LENGTH) if error else "",
        output=inert(output, OUTPUT_LENGTH),
    )
