"""
Fit projections and fusion on the vectors of encoders that stay as they are.

``python -m airflow_provider_llmbatch.engine.fusion.fit --source records.jsonl --model folder`` reads records
with a ``label`` and writes a model for ``predict``. Encoders of images keep their random weights.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph, Projection
from airflow_provider_llmbatch.engine.fusion.model import fresh, save_model
from airflow_provider_llmbatch.engine.fusion.opening import draw_plan, open_pipeline, read_facts_file
from airflow_provider_llmbatch.engine.fusion.records import read_records
from airflow_provider_llmbatch.engine.fusion.spec import Spec, read_spec
from airflow_provider_llmbatch.errors import InputError

#: Share of modalities that are hidden from each record in each step, but never all of a record.
DROPOUT = 0.2
#: One record of so many is held out.
HELD_OUT = 5
#: Steps between two looks at them, and looks without gain after which it is enough.
_EVERY, _PATIENCE = 5, 6
#: Draws of hidden modalities that they are looked at with.
_DRAWS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """What the encoders gave for labelled records."""

    #: by modality, (rows, width)
    values: Mapping[str, Tensor]
    #: by modality, which records the rows are
    rows: Mapping[str, Sequence[int]]
    labels: Sequence[Any]

    @property
    def size(self) -> int:
        """How many records."""
        return len(self.labels)


def encode(spec: Spec, clocks: Clocks) -> Vectors:
    """
    Return the vectors of all records that can be used and have a label.

    :raises InputError: when there are none.
    """
    drawn = draw_plan(spec)
    pipeline, _ = open_pipeline(spec, drawn, clocks)
    facts = read_facts_file(Path(spec.facts)) if spec.facts else {}
    records = (
        each for each in read_records(spec.source, spec.schema, facts, spec.base) if each.label is not None
    )
    values: dict[str, list[Tensor]] = {name: [] for name in spec.schema.names}
    rows: dict[str, list[int]] = {name: [] for name in spec.schema.names}
    labels: list[Any] = []
    for step in pipeline.steps(iter(lambda: list(itertools.islice(records, drawn.batch)), [])):
        usable = [verdict for verdict in step.verdicts if verdict.quarantined is None]
        for place, verdict in enumerate(usable):
            for name in verdict.present:
                rows[name].append(len(labels) + place)
        labels += [verdict.record.label for verdict in usable]
        for name, found in (step.fused.vectors if step.fused else {}).items():
            values[name].append(found)
    if not labels:
        raise InputError("No record of the source has a label and can be used.")
    kept = {name: torch.cat(found) for name, found in values.items() if found}
    return Vectors(values=kept, rows={name: rows[name] for name in kept}, labels=labels)


def fit(
    graph: FusionGraph,
    vectors: Vectors,
    classes: Sequence[Any],
    *,
    seed: int,
    steps: int = 300,
    dropout: float = DROPOUT,
) -> float:
    """
    Fit a graph in place, and return its loss on the records that were held out.

    Every fifth record is held out; the weights kept are those that do best on them.

    :param classes: what labels can be; the second of two is the one that scores speak of.
    :param dropout: share of modalities that are hidden in each step.
    """
    seen, held = (
        _only(vectors, [row for row in range(vectors.size) if (row % HELD_OUT == HELD_OUT - 1) is out])
        for out in (False, True)
    )
    for name, found in seen.values.items():
        projection = graph.projections[name]
        assert isinstance(projection, Projection)
        projection.standardise(found)
    weights = [*graph.projections.parameters(), *graph.fusion.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=1e-3, weight_decay=0.05)
    chance = torch.Generator().manual_seed(seed)
    best, kept, since = float("inf"), graph.state_dict(), 0
    for step in range(steps):
        loss = _loss(graph, _with_dropout(seen, dropout, chance), classes)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % _EVERY:
            continue
        now = _judged(graph, held if held.size else seen, classes)
        since = 0 if now < best else since + 1
        if now < best:
            best, kept = now, {name: value.clone() for name, value in graph.state_dict().items()}
        if since == _PATIENCE:
            break
    graph.load_state_dict(kept)
    return best


def _judged(graph: FusionGraph, vectors: Vectors, classes: Sequence[Any]) -> float:
    """Return the mean loss on records as they are and with half of their modalities hidden."""
    chance = torch.Generator().manual_seed(0)
    draws = [vectors, *(_with_dropout(vectors, 0.5, chance) for _ in range(_DRAWS))]
    with torch.no_grad():
        return sum(float(_loss(graph, draw, classes)) for draw in draws) / len(draws)


def _only(vectors: Vectors, records: Sequence[int]) -> Vectors:
    """Return the vectors of some records."""
    places = {record: place for place, record in enumerate(records)}
    values, rows = {}, {}
    for name, found in vectors.values.items():
        chosen = [n for n, row in enumerate(vectors.rows[name]) if row in places]
        values[name] = found[chosen]
        rows[name] = [places[vectors.rows[name][n]] for n in chosen]
    return Vectors(values=values, rows=rows, labels=[vectors.labels[record] for record in records])


def _with_dropout(vectors: Vectors, share: float, chance: torch.Generator) -> Vectors:
    """Hide some modalities of some records; a record keeps at least one."""
    names = list(vectors.values)
    there = torch.zeros(vectors.size, len(names), dtype=torch.bool)
    for column, name in enumerate(names):
        there[list(vectors.rows[name]), column] = True
    luck = torch.rand(there.shape, generator=chance).masked_fill(~there, 0.0)
    kept = there & ((luck > share) | (luck == luck.max(dim=1, keepdim=True).values))
    values, rows = {}, {}
    for column, name in enumerate(names):
        chosen = kept[list(vectors.rows[name]), column]
        values[name] = vectors.values[name][chosen]
        rows[name] = [row for row, keep in zip(vectors.rows[name], chosen.tolist(), strict=True) if keep]
    return Vectors(values=values, rows=rows, labels=vectors.labels)


def _loss(graph: FusionGraph, vectors: Vectors, classes: Sequence[Any]) -> Tensor:
    outputs = graph.fuse(vectors.values, vectors.rows, vectors.size).outputs
    target = torch.tensor([list(classes).index(label) for label in vectors.labels])
    if outputs.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(outputs[:, 0], target.float())
    return F.cross_entropy(outputs, target)


def fit_model(spec: Spec, folder: Path, clocks: Clocks) -> dict[str, Any]:
    """Encode, fit and store a model; returns what was done."""
    vectors = encode(spec, clocks)
    torch.set_num_threads(1)  # the matrices are small, and threads would wait for each other
    classes = sorted(set(vectors.labels), key=str)
    if len(classes) < 2:
        raise InputError(f"The labels of the source are all {classes[0]!r}; give records of two kinds.")
    graph = fresh(spec.schema, seed=spec.seed, outputs=1 if len(classes) == 2 else len(classes))
    loss = fit(graph, vectors, classes, seed=spec.seed)
    about = {"classes": classes, "records": vectors.size, "loss": round(loss, 6)}
    save_model(graph, folder, about)
    return about


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit a model from the command line."""
    parser = argparse.ArgumentParser(prog="fit", description=__doc__)
    parser.add_argument("--source", required=True, help="JSONL, CSV or Parquet with labels")
    parser.add_argument("--model", required=True, help="folder that the model is written to")
    parser.add_argument("--schema", default="ct+wsi+notes", help="name of a preset, or a schema as JSON")
    parser.add_argument("--facts", help="JSONL of facts by id")
    parser.add_argument("--deid", default="refuse", choices=("refuse", "warn", "off"))
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    schema = json.loads(given.schema) if given.schema.startswith(("{", "[")) else given.schema
    kept = {"source": given.source, "facts": given.facts, "deid": given.deid, "seed": given.seed}
    spec = read_spec({**kept, "schema": schema, "result_path": given.model})
    about = fit_model(spec, Path(given.model), Clocks())
    print(f"fit: ok, {about['records']} records, loss {about['loss']:.3f}, model in {given.model}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
