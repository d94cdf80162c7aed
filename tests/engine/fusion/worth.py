"""
What fusion is worth on a planted cohort: how well each subset of modalities tells the label.

The baseline is what a dense batch does: the same network, trained by the same loop for as many steps on as
many looks, reads an empty volume, black patches and an empty note where a modality is missing, and is trained
with modalities missing as often.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion import metrics
from airflow_provider_llmbatch.engine.fusion.evaluation import Scored
from airflow_provider_llmbatch.engine.fusion.examples import Arrays, Examples, Vectors
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.looks import hide
from airflow_provider_llmbatch.engine.fusion.model import fresh
from airflow_provider_llmbatch.engine.fusion.opening import draw_plan, open_pipeline
from airflow_provider_llmbatch.engine.fusion.policy import Training
from airflow_provider_llmbatch.engine.fusion.records import read_records
from airflow_provider_llmbatch.engine.fusion.schema import read_schema
from airflow_provider_llmbatch.engine.fusion.spec import read_spec
from airflow_provider_llmbatch.engine.fusion.train import Trainer
from airflow_provider_llmbatch.engine.fusion.training import stages
from tests.engine.fusion.conftest import SCHEMA
from tests.engine.fusion.counting import PLAIN, batch_of

#: Draws of who lacks what, over which is averaged: one of them alone says little with a hundred records.
DRAWS = 20
_SCHEMA = read_schema(SCHEMA)
_NAMES = _SCHEMA.names


@dataclass(frozen=True)
class Cohort:
    """Whole records, decoded."""

    arrays: list[Arrays]
    labels: np.ndarray
    #: by modality, of the encoders before training: (records, width)
    vectors: dict[str, Tensor]
    #: what a dense batch holds where a modality is missing, and what encoders make of it before training
    nothing: Arrays
    empty: dict[str, Tensor]

    def __len__(self) -> int:
        return len(self.labels)


def read_cohort(records: Path) -> Cohort:
    """Decode and encode all records of a source."""
    asked = {"source": str(records), "result_path": "unused", "schema": SCHEMA, "device": "cpu"}
    spec = read_spec(asked)
    pipeline, _ = open_pipeline(spec, draw_plan(spec), Clocks())
    torch.set_num_threads(1)  # threads would wait for each other beside other tests
    arrays, labels = [], []
    for record in read_records(spec.source, spec.schema, {}, spec.base):
        verdict = pipeline.examiner.look(record)
        arrays.append({name: decode() for name, decode in verdict.present.items()})
        labels.append(record.label)
    nothing = pipeline.examiner.nothing()
    encoded = _encoded(pipeline.graph, [*arrays, nothing])
    vectors = {name: values[:-1] for name, values in encoded.items()}
    empty = {name: values[-1] for name, values in encoded.items()}
    return Cohort(arrays, np.asarray(labels), vectors, nothing, empty)


def _encoded(graph: FusionGraph, arrays: Sequence[Arrays]) -> dict[str, Tensor]:
    if not any(arrays):
        return {}
    with torch.no_grad():
        parts = [
            graph.encode(batch_of(_SCHEMA, arrays[start : start + 32]), PLAIN)
            for start in range(0, len(arrays), 32)
        ]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _without(arrays: Arrays, frozen: Collection[str]) -> Arrays:
    return {name: array for name, array in arrays.items() if name not in frozen}


def marked(cohort: Cohort, frozen: Collection[str]) -> Examples:
    """Return examples as they are; the loop hides modalities by itself."""
    every = torch.arange(len(cohort))
    return Examples(
        targets=torch.from_numpy(cohort.labels),
        vectors={name: Vectors(values=values, places=every) for name, values in cohort.vectors.items()},
        load=lambda batches: ([_without(cohort.arrays[n], frozen) for n in batch] for batch in batches),
    )


class Dense:
    """Examples of a dense batch: first all records whole, then all of them with modalities emptied anew."""

    def __init__(self, cohort: Cohort, frozen: Collection[str], seed: int) -> None:
        self._cohort, self._frozen, self._count = cohort, frozen, len(cohort)
        self._chance = torch.Generator().manual_seed(seed)
        self._kept = torch.ones(2 * self._count, len(_NAMES), dtype=torch.bool)

    def examples(self) -> Examples:
        vectors: dict[str, Vectors] = {
            name: _Emptied(values.repeat(2, 1), self._cohort.empty[name], self._kept[:, column])
            for column, (name, values) in enumerate(self._cohort.vectors.items())
        }
        targets = torch.from_numpy(np.tile(self._cohort.labels, 2))
        return Examples(targets=targets, vectors=vectors, load=self._load)

    def _load(self, batches: Iterable[Sequence[int]]) -> Iterator[list[Arrays]]:
        for batch in batches:
            emptied = [number for number in batch if number >= self._count]
            whole = torch.ones(len(emptied), len(_NAMES), dtype=torch.bool)
            self._kept[emptied] = hide(whole, 0.5, self._chance)
            yield [self._filled(number) for number in batch]

    def _filled(self, number: int) -> Arrays:
        kept = dict(zip(_NAMES, self._kept[number].tolist(), strict=True))
        whole = _without(self._cohort.arrays[number % self._count], self._frozen)
        return {name: array if kept[name] else self._cohort.nothing[name] for name, array in whole.items()}


class _Emptied(Vectors):
    """Vectors of a modality, of which those that are emptied now are the vector of its empty input."""

    def __init__(self, values: Tensor, empty: Tensor, kept: Tensor) -> None:
        super().__init__(values=values, places=torch.arange(len(values)))
        object.__setattr__(self, "_now", (empty, kept))

    def of(self, examples: Tensor) -> tuple[Tensor, list[int]]:
        empty, kept = self._now
        there = kept[examples][:, None]
        return torch.where(there, self.values[examples], empty), list(range(len(examples)))


def trained(
    examples: Callable[[Collection[str]], Examples],
    frozen: Collection[str],
    training: Training,
    *,
    batch: int,
    seed: int,
) -> FusionGraph:
    graph = fresh(_SCHEMA, seed=0)  # whose vectors the cohorts hold
    asked = {
        "source": "unused",
        "result_path": "unused",
        "schema": _SCHEMA,
        "training": training,
        "seed": seed,
    }
    policies = {name: {"frozen": name in frozen} for name in _NAMES}
    plan = Plan(batch=batch)
    for _, how in stages(read_spec({**asked, "policies": policies}), plan):
        encoded = [name for name, policy in how.policies.items() if policy.frozen]
        Trainer(graph, examples(encoded), how).run(lambda course, total: None)
    return graph


def scored(graph: FusionGraph, cohort: Cohort, frozen: Collection[str]) -> Scored:
    """Return whole records as a graph reads them."""
    anew = _encoded(graph, [_without(each, frozen) for each in (*cohort.arrays, cohort.nothing)])
    kept = {name: torch.cat([cohort.vectors[name], cohort.empty[name][None]]) for name in frozen}
    with torch.inference_mode():
        count = len(cohort) + 1
        read = graph.tokens({**anew, **kept}, {name: range(count) for name in _NAMES}, count)
    return Scored(
        graph=graph,
        tokens=read.values[:-1],
        present=read.present[:-1],
        empty=read.values[-1],
        truth=cohort.labels,
    )


def figures(found: Scored, *, dense: bool) -> dict[str, dict[str, float]]:
    """
    Return AUROC and log loss of each subset of modalities, and with half of them missing.

    :param dense: whether what is missing is read as empty, not marked.
    """

    def said(present: Tensor) -> tuple[float, float]:
        if dense:
            filled = torch.where(present[..., None], found.tokens, found.empty)
            values = found.said(filled, torch.ones_like(present))
        else:
            values = found.said(found.tokens, present)
        return metrics.auroc(values, found.truth) or 0.0, metrics.log_loss(values, found.truth)

    results = {}
    for size in range(1, len(_NAMES) + 1):
        for kept in itertools.combinations(range(len(_NAMES)), size):
            present = torch.zeros_like(found.present)
            present[:, list(kept)] = True
            results["+".join(_NAMES[place] for place in kept)] = said(present)
    draws = [said(torch.from_numpy(_half(*found.present.shape, seed=draw))) for draw in range(DRAWS)]
    results["half missing"] = tuple(np.mean(draws, axis=0).tolist())
    return {name: {"auroc": area, "log_loss": loss} for name, (area, loss) in results.items()}


def worth(
    train: Cohort,
    test: Cohort,
    *,
    seed: int,
    training: Training,
    batch: int = 8,
    frozen: Collection[str] = ("notes",),
) -> dict[str, Any]:
    """
    Train on one cohort both ways, and measure on another one.

    The dense batch has each record twice, whole and emptied, where the loop looks at it twice: as many steps.

    :param frozen: modalities whose encoders stay as they are.
    """
    ours = trained(lambda encoded: marked(train, encoded), frozen, training, batch=batch, seed=seed)
    plain = dataclasses.replace(training, modality_dropout=0.0)
    dense = trained(
        lambda encoded: Dense(train, encoded, seed).examples(), frozen, plain, batch=2 * batch, seed=seed
    )
    return {
        "fused": figures(scored(ours, test, frozen), dense=False),
        "zero_filled": figures(scored(dense, test, frozen), dense=True),
    }


def mean(found: Sequence[Any]) -> Any:
    """Return the mean of results of the same shape."""
    if isinstance(found[0], dict):
        return {name: mean([each[name] for each in found]) for name in found[0]}
    return round(float(np.mean(found)), 4)


def best_single(subsets: dict[str, dict[str, float]]) -> float:
    return max(subsets[name]["auroc"] for name in _NAMES)


def _half(records: int, modalities: int, *, seed: int) -> np.ndarray:
    """Return who keeps what when half of the modalities are missing; everybody keeps one."""
    chance = np.random.default_rng(seed)
    there = chance.random((records, modalities)) < 0.5
    there[np.arange(records), chance.integers(0, modalities, records)] |= ~there.any(axis=1)
    return there
