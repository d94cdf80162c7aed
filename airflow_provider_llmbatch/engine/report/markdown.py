"""The report as Markdown, for a chat message, a pull request or a log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from airflow_provider_llmbatch.engine.report.account import Report
from airflow_provider_llmbatch.engine.report.inert import inert
from airflow_provider_llmbatch.engine.report.sections import Section, headlines, reasons, sections

_ACTIVE = re.compile(r"[\\`*_{}\[\]|~]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "://": "&#58;//"}
_ENTITY = re.compile("|".join(_ENTITIES))


def to_markdown(report: Report) -> str:
    """Return ``report`` as Markdown with tables."""
    return "\n".join(_lines(report)).strip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {_escaped(inert(report.title))}"
    yield ""
    yield f"**{report.state.capitalize()}.** {_escaped(' '.join(reasons(report)))}".strip()
    yield ""
    for figure in headlines(report):
        note = f" ({_escaped(figure.note)})" if figure.note else ""
        yield f"- {figure.label}: **{_escaped(figure.value)}**{note}"
    for section in sections(report):
        yield ""
        yield f"## {section.title}"
        yield ""
        yield from _table(section)
    if report.unknowns:
        yield ""
        yield "## What this report does not know"
        yield ""
        yield from (f"- {_escaped(sentence)}" for sentence in report.unknowns)


def _table(section: Section) -> Iterator[str]:
    yield _row(name.removesuffix("#") for name in section.head)
    yield _row("--:" if name.endswith("#") else "---" for name in section.head)
    for row in section.rows:
        yield _row(_escaped(cell) for cell in row)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Take the meaning from Markdown's and HTML's characters, and from what chats turn into links."""
    return _ACTIVE.sub(r"\\\g<0>", _ENTITY.sub(lambda match: _ENTITIES[match[0]], text))
