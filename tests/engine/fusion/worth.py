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
    there = _half(asked.size, len(names), seed)
    kept = {name: np.flatnonzero(there[:, column]).tolist() for column, name in enumerate(names)}
    missing = auroc(scores(graph, asked, kept), asked.labels)
    dense = fresh(spec.schema, seed=seed)
    fit(dense, seen, [0, 1], seed=seed, dropout=0.0)
    filled = Vectors(values=_zeros(dense, asked, there), rows=asked.rows, labels=asked.labels)
    zeros = auroc(scores(dense, filled, {name: every for name in names}), asked.labels)
    return {"subsets": subsets, "half_missing": missing, "half_missing_zero_filled": zeros}


def _half(records: int, modalities: int, seed: int) -> np.ndarray:
    """Return who keeps what when half of the modalities are missing; everybody keeps one."""
    chance = np.random.default_rng(seed)
    there = chance.random((records, modalities)) < 0.5
    there[np.arange(records), chance.integers(0, modalities, records)] |= ~there.any(axis=1)
    return there


def _zeros(graph: FusionGraph, vectors: Vectors, there: np.ndarray) -> dict[str, torch.Tensor]:
    """Return vectors with those of empty inputs where a modality is missing."""
    empty = {name: np.zeros_like(array) for name, array in made_up(graph.schema, [[True] * 3])[0].items()}
    empty["notes"][0, :2] = (101, 102)
    with torch.no_grad():
        nothing = graph(batch_of(graph.schema, [empty]), PLAIN).vectors
    return {
        name: torch.where(torch.from_numpy(there[:, [column]]), vectors.values[name], nothing[name])
        for column, name in enumerate(graph.schema.names)
    }
