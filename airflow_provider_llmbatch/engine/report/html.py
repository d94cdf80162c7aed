"""The report as one HTML file: no script, nothing fetched, light and dark, for a phone and for paper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from airflow_provider_llmbatch.engine.report import numbers
from airflow_provider_llmbatch.engine.report.account import HeatMap, Report
from airflow_provider_llmbatch.engine.report.inert import inert
from airflow_provider_llmbatch.engine.report.sections import MEANINGS, headlines, reasons, sections

if TYPE_CHECKING:
    from jinja2 import Template

#: shades of the heat map, without that for no call
SHADES = 8


@dataclass(frozen=True, slots=True)
class _Cell:
    shade: int
    #: read out, and shown on hovering
    words: str


@dataclass(frozen=True, slots=True)
class _HeatRow:
    label: str
    cells: tuple[_Cell, ...]


def to_html(report: Report) -> str:
    """Return ``report`` as a self-contained HTML page."""
    return _template().render(
        title=inert(report.title),
        report=report,
        headlines=headlines(report),
        reasons=reasons(report),
        sections=sections(report),
        meanings=MEANINGS,
        heat=_heat_rows(report.heat) if report.heat else (),
        heat_from=numbers.moment(report.heat.start) if report.heat else "",
        heat_to=numbers.moment(_end(report.heat)) if report.heat else "",
        count=numbers.count,
        share=numbers.share,
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(
        files("airflow_provider_llmbatch.engine.report").joinpath("report.html.jinja").read_text("utf-8")
    )


def _end(heat: HeatMap) -> float:
    return heat.start + heat.step_s * len(heat.counts)


def _heat_rows(heat: HeatMap) -> list[_HeatRow]:
    most = max((count for column in heat.counts for count in column), default=0)
    rows = []
    for row in reversed(range(len(heat.below_ms))):
        bound = numbers.milliseconds(heat.below_ms[row])
        cells = tuple(
            _Cell(_shade(column[row], most), _words(column[row], bound, heat.start + place * heat.step_s))
            for place, column in enumerate(heat.counts)
        )
        rows.append(_HeatRow(f"< {bound}", cells))
    return rows


def _words(count: int, bound: str, at: float) -> str:
    return f"{numbers.count(count)} below {bound}, {numbers.moment(at)}"


def _shade(count: int, most: int) -> int:
    # By the square root: single slow calls stay visible beside thousands of quick ones.
    return math.ceil(SHADES * math.sqrt(count / most)) if count else 0
