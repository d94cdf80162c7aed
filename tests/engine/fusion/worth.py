"""What fusion is worth on a planted cohort: how well each subset of modalities tells the label."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion.fit import Vectors, encode, fit
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.model import fresh
from airflow_provider_llmbatch.engine.fusion.spec import Spec, read_spec
from tests.engine.fusion.conftest import SCHEMA
from tests.engine.fusion.counting import PLAIN, batch_of, made_up

#: Draws of who lacks what, over which is averaged: one of them alone says little with a hundred records.
DRAWS = 20


def vectors_of(records: Path) -> tuple[Spec, Vectors]:
    """Encode all records of a source."""
    spec = read_spec({"source": str(records), "result_path": "unused", "schema": SCHEMA, "device": "cpu"})
    found = encode(spec, Clocks())
    torch.set_num_threads(1)  # the matrices of a fit are small, and threads would wait for each other
    return spec, found


def auroc(scores: Sequence[float], labels: Sequence[int]) -> float:
    """Return the chance that a record of label 1 scores above one of label 0 (Mann and Whitney, 1947)."""
    values, truth = np.asarray(scores), np.asarray(labels)
    high, low = values[truth == 1][:, None], values[truth == 0][None]
    return float((high > low).mean() + 0.5 * (high == low).mean())


def log_loss(scores: Sequence[float], labels: Sequence[int]) -> float:
    """Return the mean of -ln of the probability that was given to what is true; scores are logits."""
    signs = np.where(np.asarray(labels) == 1, 1, -1)
    return float(np.logaddexp(0, -signs * np.asarray(scores)).mean())


def scores(graph: FusionGraph, vectors: Vectors, kept: Mapping[str, Sequence[int]]) -> list[float]:
    """Return what a graph says of records when only some rows of each modality are there."""
    values = {name: vectors.values[name][list(rows)] for name, rows in kept.items() if len(rows)}
    with torch.no_grad():
        return graph.fuse(values, {n: kept[n] for n in values}, vectors.size).outputs[:, 0].tolist()


def worth(train: Path, test: Path, *, seed: int = 0) -> dict[str, Any]:
    """
    Fit on one cohort, and measure on another one, whole and with half of its modalities missing.

    The baseline of zeros is what a dense batch does: fitted on whole records without hiding anything, it
    reads the encoding of an empty volume, black patches and an empty note where a modality is missing.
    """
    _, seen = vectors_of(train)
    spec, asked = vectors_of(test)
    names = spec.schema.names
    graph = fresh(spec.schema, seed=seed)
    fit(graph, seen, [0, 1], seed=seed)
    every = range(asked.size)
    subsets = {
        "+".join(kept): auroc(scores(graph, asked, {name: every for name in kept}), asked.labels)
        for size in range(1, len(names) + 1)
        for kept in itertools.combinations(names, size)
    }
    dense = fresh(spec.schema, seed=seed)
    fit(dense, seen, [0, 1], seed=seed, dropout=0.0)
    empty = _of_nothing(dense)
    found: dict[str, list[tuple[float, float]]] = {"half_missing": [], "half_missing_zero_filled": []}
    for draw in range(DRAWS):
        there = _half(asked.size, len(names), draw)
        kept = {name: np.flatnonzero(there[:, column]).tolist() for column, name in enumerate(names)}
        filled = {
            name: torch.where(torch.from_numpy(there[:, [column]]), asked.values[name], empty[name])
            for column, name in enumerate(names)
        }
        dense_batch = Vectors(values=filled, rows=asked.rows, labels=asked.labels)
        said = {
            "half_missing": scores(graph, asked, kept),
            "half_missing_zero_filled": scores(dense, dense_batch, {name: every for name in names}),
        }
        for name, values in said.items():
            found[name].append((auroc(values, asked.labels), log_loss(values, asked.labels)))
    means = {name: np.mean(values, axis=0).tolist() for name, values in found.items()}
    whole = {name: {"auroc": area, "log_loss": loss} for name, (area, loss) in means.items()}
    return {"subsets": subsets, **whole, "draws": DRAWS}


def _half(records: int, modalities: int, seed: int) -> np.ndarray:
    """Return who keeps what when half of the modalities are missing; everybody keeps one."""
    chance = np.random.default_rng(seed)
    there = chance.random((records, modalities)) < 0.5
    there[np.arange(records), chance.integers(0, modalities, records)] |= ~there.any(axis=1)
    return there


def _of_nothing(graph: FusionGraph) -> dict[str, torch.Tensor]:
    """Return the vectors of empty inputs: a volume of zeros, black patches, a note of two marks."""
    empty = {name: np.zeros_like(array) for name, array in made_up(graph.schema, [[True] * 3])[0].items()}
    empty["notes"][0, :2] = (101, 102)
    with torch.no_grad():
        return dict(graph(batch_of(graph.schema, [empty]), PLAIN).vectors)
