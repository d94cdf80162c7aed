"""The report of an evaluation, in Markdown and as one HTML file with plots: no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template

#: What the figures mean.
MEANINGS = (
    ("AUROC", "the chance that a record of a class scores above one of another; 0.5 says nothing, 1 all"),
    ("Log loss", "the mean of -ln of the probability given to what is true; lower is better"),
    ("Brier score", "the mean squared error of the probabilities; lower is better"),
    ("ECE", "how far probabilities are from the shares that came true, on average over ten bins"),
    ("95 %", "of 400 draws of as many records, with replacement; they say nothing of other cohorts"),
)
NOTE = (
    "A row of the table is over the records that have these modalities, scored on these alone; so rows can "
    "differ in their records. Where half is hidden, “empty inputs” are zeros that this same model reads "
    "where a modality is missing: it was not trained on such."
)


def to_markdown(found: Mapping[str, Any]) -> str:
    """Return an evaluation as Markdown."""
    subsets = [
        (name, row["records"], number(row["auroc"]), between(row["auroc_interval"]), *_loss_and_ece(row))
        for name, row in found["subsets"].items()
    ]
    calibration = [
        (f"{row['from']:.1f} to {row['to']:.1f}", row["records"], number(row["said"]), number(row["true"]))
        for row in found["reliability"]
    ]
    half = [(name, number(row["auroc"]), number(row["log_loss"])) for name, row in _half(found)]
    lines = [
        "# Evaluation",
        f"{found['whole']['records']} labelled records of {found['classes']} classes, "
        f"{found['unlabelled']} without a label left aside; model {found['model_digest'][:16]}.",
        _table(("figure", "value", "95 %"), _figures(found["whole"])),
        "## By modality",
        _table(("modalities", "records", "AUROC", "95 %", "log loss", "ECE"), subsets),
        "## Half of the modalities hidden",
        _table(("what is hidden is", "AUROC", "log loss"), half),
        "## Calibration",
        _table(("said", "records", "said on average", "came true"), calibration),
        "\n".join(f"* **{name}**: {words}." for name, words in MEANINGS),
        NOTE,
    ]
    return "\n\n".join(lines) + "\n"


def to_html(found: Mapping[str, Any]) -> str:
    """Return an evaluation as a self-contained HTML page."""
    return _template().render(
        found=found,
        figures=_figures(found["whole"]),
        half=_half(found),
        meanings=MEANINGS,
        note=NOTE,
        number=number,
        between=between,
    )


def number(value: float | None) -> str:
    """Return a figure as text."""
    return "–" if value is None else f"{value:.3f}"


def between(interval: Sequence[float] | None) -> str:
    """Return an interval as text."""
    return "–" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"


def _figures(whole: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        ("AUROC", number(whole["auroc"]), between(whole["auroc_interval"])),
        ("Log loss", number(whole["log_loss"]), between(whole["log_loss_interval"])),
        ("Brier score", number(whole["brier"]), "–"),
        ("ECE", number(whole["ece"]), "–"),
    ]


def _loss_and_ece(row: Mapping[str, Any]) -> tuple[str, str]:
    return number(row["log_loss"]), number(row["ece"])


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table, its first column to the left and the others to the right."""
    marks = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (head, marks, *rows))


def _half(found: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    half = found["half_hidden"]
    return [("marked as missing", half["marked"]), ("empty inputs", half["zero_filled"])]


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(
        files("airflow_provider_llmbatch.engine.fusion").joinpath("evaluation.html.jinja").read_text("utf-8")
    )
