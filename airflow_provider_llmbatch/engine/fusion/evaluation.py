"""Mode ``evaluate``: what a trained model's scores are worth on a source with labels."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from airflow_provider_llmbatch.engine.fusion import metrics
from airflow_provider_llmbatch.engine.fusion.batch import Arena, collate
from airflow_provider_llmbatch.engine.fusion.evaluation_report import to_html, to_markdown
from airflow_provider_llmbatch.engine.fusion.examples import Labelled, read_labelled
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.looks import hide
from airflow_provider_llmbatch.engine.fusion.loops import Emit
from airflow_provider_llmbatch.engine.fusion.metrics import Floats, Whole
from airflow_provider_llmbatch.engine.fusion.model import read_classes, targets_of
from airflow_provider_llmbatch.engine.fusion.opening import Opened

#: Files beside the manifest.
JSON, MARKDOWN, HTML = "evaluation.json", "evaluation.md", "evaluation.html"
#: Draws of who lacks what, over which is averaged where half of the modalities are hidden.
DRAWS = 20
#: Most subsets of modalities that a manifest names; all of them stand in the files.
_MOST = 16
#: Records that are scored at once.
_AT_ONCE = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Labelled records as the fusion of a model reads them."""

    graph: FusionGraph
    #: (records, modalities, width)
    tokens: Tensor
    #: (records, modalities) of bool
    present: Tensor
    #: (modalities, width): what an empty input of each modality is read as
    empty: Tensor
    truth: Whole

    def said(self, tokens: Tensor, present: Tensor) -> Floats:
        """Return probabilities: (records, classes)."""
        parts = []
        with torch.inference_mode():
            for some, there in zip(tokens.split(_AT_ONCE), present.split(_AT_ONCE), strict=True):
                _, outputs, _ = self.graph.read(some, there)
                yes = outputs.sigmoid()
                both = torch.cat([1 - yes, yes], dim=1)
                parts.append(both if outputs.shape[1] == 1 else outputs.softmax(dim=1))
        found: Floats = torch.cat(parts).double().cpu().numpy()
        return found


def evaluate(opened: Opened, windows: int, emit: Emit) -> dict[str, Any]:
    """
    Measure, store the report, and return what the manifest says of it.

    :param windows: how many are stored.
    :raises InputError: when no record has a label, or one that the model does not know.
    :raises ConfigurationError: when the model does not say its classes, or scikit-learn is not installed.
    """
    labelled = read_labelled(opened, windows)
    classes = read_classes(Path(opened.spec.model or ""))
    scored = _scored(opened, labelled, targets_of(labelled.labels, classes))
    found = {
        "modalities": list(opened.spec.schema.names),
        "classes": len(classes),
        "unlabelled": labelled.unlabelled,
        "model_digest": opened.model_digest,
        **measure(scored, list(opened.spec.schema.names), seed=opened.spec.seed),
    }
    opened.store.put(JSON, json.dumps(found, indent=1).encode())
    opened.store.put(MARKDOWN, to_markdown(found).encode())
    opened.store.put(HTML, to_html(found).encode())
    emit({"event": "evaluated", "report": f"{opened.store.uri}/{HTML}"})
    return {"metrics": _short(found), "report": f"{opened.store.uri}/{HTML}"}


def measure(scored: Scored, names: list[str], *, seed: int = 0) -> dict[str, Any]:
    """
    Return all figures as JSON values.

    :param names: of the modalities.
    """
    whole = scored.said(scored.tokens, scored.present)
    return {
        "whole": metrics.measured(whole, scored.truth, seed=seed),
        "reliability": metrics.reliability(whole, scored.truth),
        "subsets": dict(_subsets(scored, names, seed)),
        "half_hidden": _half_hidden(scored, seed),
    }


def _subsets(scored: Scored, names: list[str], seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield, for each set of modalities, what the model says of records that have it, seeing no more."""
    for size in range(1, len(names) + 1):
        for kept in itertools.combinations(range(len(names)), size):
            rows = scored.present[:, list(kept)].all(dim=1)
            if not rows.any():
                continue
            present = torch.zeros_like(scored.present)
            present[:, list(kept)] = True
            said = scored.said(scored.tokens[rows], present[rows])
            truth = scored.truth[rows.cpu().numpy()]
            yield "+".join(names[place] for place in kept), metrics.measured(said, truth, seed=seed)


def _half_hidden(scored: Scored, seed: int) -> dict[str, Any]:
    """Hide half of the modalities: marked as missing, and as a dense batch has it, with empty inputs."""
    chance = torch.Generator().manual_seed(seed)
    marked, filled = [], []
    everything = torch.ones_like(scored.present)
    for _ in range(DRAWS):
        kept = hide(scored.present, 0.5, chance)
        marked.append((scored.said(scored.tokens, kept), scored.truth))
        dense = torch.where(kept[..., None], scored.tokens, scored.empty)
        filled.append((scored.said(dense, everything), scored.truth))
    return {
        name: {
            "auroc": metrics.mean_of(draws, metrics.auroc),
            "log_loss": metrics.mean_of(draws, metrics.log_loss),
        }
        for name, draws in (("marked", marked), ("zero_filled", filled))
    } | {"draws": DRAWS}


def _scored(opened: Opened, labelled: Labelled, targets: Tensor) -> Scored:
    graph, names = opened.pipeline.graph, opened.spec.schema.names
    device = graph.fusion.null.device
    every = torch.arange(len(targets))
    vectors, rows = {}, {}
    for name, found in labelled.vectors.items():
        values, rows[name] = found.of(every)
        vectors[name] = values.to(device)
    nothing = collate(opened.spec.schema, [opened.pipeline.examiner.nothing()], Arena()).to_device(device)
    with torch.inference_mode():
        read = graph.tokens(vectors, rows, len(targets))
        empty = graph.tokens(graph.encode(nothing, opened.plan), {name: (0,) for name in names}, 1)
    return Scored(
        graph=graph, tokens=read.values, present=read.present, empty=empty.values[0], truth=targets.numpy()
    )


def _short(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures that a manifest has room for."""
    whole = {name: _rounded(value) for name, value in found["whole"].items()}
    subsets = {
        name: {figure: _rounded(row[figure]) for figure in ("records", "auroc", "log_loss")}
        for name, row in list(found["subsets"].items())[:_MOST]
    }
    half = {
        name: {figure: _rounded(value) for figure, value in found["half_hidden"][name].items()}
        for name in ("marked", "zero_filled")
    }
    return {**whole, "unlabelled": found["unlabelled"], "subsets": subsets, "half_hidden": half}


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value
