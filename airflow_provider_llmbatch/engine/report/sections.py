"""
The report as words and tables, once for all formats.

Texts from outside are made inert here; escaping is left to each format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.items import Outcome
from airflow_provider_llmbatch.engine.report import numbers
from airflow_provider_llmbatch.engine.report.account import Report
from airflow_provider_llmbatch.engine.report.inert import inert
from airflow_provider_llmbatch.engine.summary import Manifest

#: chunks that are listed one by one
PARTS = 50

MEANINGS = {
    Outcome.OK: "answered, and as asked",
    Outcome.INVALID_OUTPUT: "the reply never satisfied the schema",
    Outcome.TRUNCATED: "the reply was cut at the output cap",
    Outcome.REFUSED: "the model declined",
    Outcome.CONTENT_FILTERED: "the service's filter stopped it",
    Outcome.TOO_LONG: "larger than the model or the limit takes",
    Outcome.BAD_REQUEST: "the service rejects the request",
    Outcome.UNRENDERED: "no request could be made of the row",
    Outcome.EXHAUSTED: "tries or time ran out",
    Outcome.UNSENT: "never sent",
    Outcome.EDITED: "a person wrote the output",
    Outcome.ACCEPTED: "a person took the output as it was",
    Outcome.SKIPPED: "a person gave it up",
}
#: What ``unsent`` means as long as there is somebody to send it.
PENDING = "not sent, or not answered yet"


@dataclass(frozen=True, slots=True)
class Headline:
    """One of the few figures that everybody looks for."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Section:
    """A table with a title."""

    title: str
    #: names of the columns; a trailing ``#`` marks one of numbers
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    #: whether the last row sums up the others
    has_total: bool = False
    #: whether cells hold running text
    is_prose: bool = False
    #: whether it fits into half of a page
    is_narrow: bool = False


def headlines(report: Report) -> list[Headline]:
    """Return the figures for the top of the page."""
    latency = report.least_and_most("latency_ms", "p95")
    took = report.ended_at - report.started_at
    return [
        Headline(
            "Usable items",
            numbers.share(report.good, report.items),
            f"{numbers.count(report.good)} of {numbers.count(report.items)}",
        ),
        Headline("Spent", _spent(report), _against_plan(report)),
        Headline(
            "95% of calls took at most",
            numbers.span(*latency, numbers.milliseconds) if latency else numbers.UNKNOWN,
            "per chunk" if len(report.parts) > 1 else "",
        ),
        Headline(
            "Took",
            numbers.duration(took) if report.started_at and took >= 0 else numbers.UNKNOWN,
            f"{numbers.count(report.resumed)} items resumed" if report.resumed else "",
        ),
    ]


def reasons(report: Report) -> list[str]:
    """Return why it stopped, when it did, or how far it is; and what comes after a pilot."""
    told = dict.fromkeys(inert(part.reason) for part in report.parts if part.reason)
    return [*told, *_after_the_pilot(report)]


def _after_the_pilot(report: Report) -> Iterator[str]:
    if not any(part.pilot_of for part in report.parts):
        return
    whole = sum(part.pilot_of or part.items for part in report.parts)
    rest, sent = whole - report.items, report.items - report.counts.get(Outcome.UNSENT, 0)
    words = f"A pilot of {numbers.count(report.items)} of {numbers.count(whole)} items"
    if report.cost.unpriced or not sent:
        yield f"{words}; the other {numbers.count(rest)} are left for a run without a sample."
    else:
        usd = numbers.money(report.cost.usd / sent * rest)
        yield f"{words}; at its cost the other {numbers.count(rest)} take about {usd}."


def sections(report: Report) -> list[Section]:
    """Return the tables, in reading order; those with nothing to say are left out."""
    made = [
        Section(
            "Outcomes", ("Outcome", "Meaning", "Items#", "Share#"), tuple(_outcomes(report)), has_total=True
        ),
        Section(
            "Examples of failed items",
            ("Item", "Outcome", "Why", "What the model wrote"),
            tuple(_examples(report)),
            is_prose=True,
        ),
        Section("Tokens", ("", "Plan#", "Actual#", "Change#"), tuple(_tokens(report)), is_narrow=True),
        Section("Money", ("", "#"), tuple(_money(report)), is_narrow=True),
        Section("Latency of answered calls", ("", "#"), tuple(_latency(report)), is_narrow=True),
        Section("Limits", ("", "#"), tuple(_limits(report)), is_narrow=True),
        Section("Made by", ("", ""), tuple(_origin(report))),
        Section(
            "Chunks",
            ("Chunk", "State", "Items#", "Usable#", "Spent#", "p95#", "Waited#"),
            tuple(_parts(report)),
        ),
    ]
    return [section for section in made if section.rows]


def _spent(report: Report) -> str:
    return numbers.money(report.cost.usd, unpriced=report.cost.unpriced)


def _against_plan(report: Report) -> str:
    estimate = report.planned.estimate if report.planned else None
    if estimate is None or estimate.usd is None:
        return ""
    planned = f"planned {numbers.money(estimate.usd)}"
    if report.cost.unpriced or report.state == "running":
        return planned
    return f"{planned}, {numbers.difference(report.cost.usd, estimate.usd)}"


def _outcomes(report: Report) -> Iterator[tuple[str, ...]]:
    for outcome, items in report.counts.items():
        shown = (numbers.count(items), numbers.share(items, report.items))
        is_pending = report.state == "running" and outcome is Outcome.UNSENT
        yield (outcome.value, PENDING if is_pending else MEANINGS[outcome], *shown)
    yield "All", "", numbers.count(report.items), numbers.share(report.items, report.items)


def _examples(report: Report) -> Iterator[tuple[str, ...]]:
    for example in report.examples:
        yield example.id, example.outcome.value, example.message, example.output


def _tokens(report: Report) -> Iterator[tuple[str, ...]]:
    usage, planned = report.usage, report.planned
    about = "≈ " if usage.estimated else ""
    for name, actual, expected in (
        ("In, all", usage.prompt, planned.prompt_tokens if planned else None),
        ("Out, all", usage.completion, planned.output_tokens if planned else None),
    ):
        shown = f"{about}{numbers.count(actual)}"
        if expected is None:
            yield name, "–", shown, "–"
        else:
            change = "" if report.state == "running" else numbers.difference(actual, expected)
            yield name, numbers.count(expected), shown, change
    if usage.cached:
        yield "In, cached", "", numbers.count(usage.cached), ""
    if usage.reasoning:
        yield "Out, reasoning", "", numbers.count(usage.reasoning), ""


def _money(report: Report) -> Iterator[tuple[str, ...]]:
    yield "Spent", _spent(report)
    estimate = report.planned.estimate if report.planned else None
    if estimate is not None:
        yield "Planned", numbers.money(estimate.usd)
        if estimate.usd_low is not None and estimate.usd_high is not None:
            yield (
                "Planned, least to most",
                " – ".join(map(numbers.money, (estimate.usd_low, estimate.usd_high))),
            )
        if estimate.usd is not None and not report.cost.unpriced and report.state != "running":
            yield "Against the plan", numbers.difference(report.cost.usd, estimate.usd)
    if report.good:
        yield (
            "For each usable item",
            numbers.money(report.cost.usd / report.good, unpriced=report.cost.unpriced),
        )
    yield "Saved by reuse", numbers.money(report.saved_usd)
    yield "Calls maybe paid twice", numbers.count(report.possible_double_paid)


def _latency(report: Report) -> Iterator[tuple[str, ...]]:
    names = {"p50": "Half of them at most", "p95": "95% at most", "p99": "99% at most", "max": "The slowest"}
    for name, words in names.items():
        if found := report.least_and_most("latency_ms", name):
            # Only of the maximum is the greatest of the parts also that of the whole.
            shown = (found[1], found[1]) if name == "max" else found
            yield words, numbers.span(*shown, numbers.milliseconds)


def _limits(report: Report) -> Iterator[tuple[str, ...]]:
    if use := report.least_and_most("limits", "use"):
        yield "Use of the binding limit", numbers.span(*use, lambda part: numbers.share(part, 1))
    for name, words in (("granted_requests", "Requests granted"), ("granted_tokens", "Tokens granted")):
        if report.least_and_most("limits", name):
            yield words, numbers.count(round(report.sum_of_limits(name)))
    if report.least_and_most("limits", "waited_s"):
        yield "Waited for limits, in all", numbers.duration(report.sum_of_limits("waited_s"))
    estimate = report.planned.estimate if report.planned else None
    if estimate is not None and estimate.seconds:
        yield "Planned time at the limits", numbers.duration(estimate.seconds)
        yield "Planned to bind", inert(estimate.binds) or "no limit"


def _origin(report: Report) -> Iterator[tuple[str, ...]]:
    prompts = {part.prompt for part in report.parts if part.prompt is not None}
    for prompt in sorted(prompts, key=str):
        yield "Prompt", f"{inert(str(prompt))}, SHA-256 {inert(prompt.sha)}"
    for words, values in (
        ("Model", [part.model for part in report.parts]),
        ("Schema, SHA-256", [part.schema_digest for part in report.parts]),
        ("Results", [part.result_path for part in report.parts]),
    ):
        for value in dict.fromkeys(filter(None, values)):
            yield words, inert(value)
    yield "Started", numbers.moment(report.started_at)
    yield "As of" if report.state == "running" else "Ended", numbers.moment(report.ended_at)


def _parts(report: Report) -> Iterator[tuple[str, ...]]:
    if len(report.parts) < 2:
        return
    for part in report.parts[:PARTS]:
        yield _part(part)
    if len(report.parts) > PARTS:
        yield (f"and {len(report.parts) - PARTS} more", *[""] * 6)


def _part(part: Manifest) -> tuple[str, ...]:
    p95, waited = part.latency_ms.get("p95"), part.limits.get("waited_s")
    return (
        str(part.chunk),
        part.state,
        numbers.count(part.items),
        f"{numbers.count(part.good)} ({numbers.share(part.good, part.items)})",
        numbers.money(part.cost.usd, unpriced=part.cost.unpriced),
        numbers.UNKNOWN if p95 is None else numbers.milliseconds(p95),
        numbers.UNKNOWN if waited is None else numbers.duration(waited),
    )
