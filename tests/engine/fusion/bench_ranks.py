"""For ``make bench-fusion``: how even loads are, how two processes differ from one, what pruning leaves."""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from airflow_provider_llmbatch.engine.fusion.balance import balance_bags
from airflow_provider_llmbatch.engine.fusion.encoders.registry import encode
from airflow_provider_llmbatch.engine.fusion.examples import Vectors
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.model import fresh
from airflow_provider_llmbatch.engine.fusion.policy import Training
from airflow_provider_llmbatch.engine.fusion.prune import prune
from airflow_provider_llmbatch.engine.fusion.ranks import lead
from airflow_provider_llmbatch.engine.fusion.schema import Schema, read_schema
from airflow_provider_llmbatch.engine.fusion.spec import read_spec
from airflow_provider_llmbatch.engine.fusion.team import Team
from airflow_provider_llmbatch.engine.fusion.train import Trainer
from airflow_provider_llmbatch.engine.fusion.training import pruned, stages
from tests.engine.fusion import rank_work
from tests.engine.fusion.conftest import SCHEMA
from tests.engine.fusion.counting import PLAIN, batch_of, flops, loads_of, made_up
from tests.engine.fusion.tiny import text_model
from tests.engine.fusion.worth import Cohort, figures, marked, scored

#: Processes, and bags of each.
SHAPES = ((2, 4), (4, 4), (8, 8), (16, 2), (16, 4))
DRAWS = 200


def balance() -> list[dict[str, Any]]:
    """Return the largest load over the mean one, for log-normal bags: each at home, and spread."""
    found = []
    for ranks, bags in SHAPES:
        home, spread, moved, under = [], [], [], 0
        for seed in range(DRAWS):
            chance = random.Random(seed)
            rows = [round(chance.lognormvariate(3.5, 1.0)) for _ in range(ranks * bags)]
            homes = [bag // bags for bag in range(len(rows))]
            mean = sum(rows) / ranks
            under += max(rows) <= mean
            pieces = balance_bags(rows, ranks, homes)
            home.append(max(sum(rows[rank * bags : (rank + 1) * bags]) for rank in range(ranks)) / mean)
            spread.append(max(loads_of(pieces, ranks)) / mean)
            moved.append(sum(p.rows for p in pieces if p.rank != homes[p.bag]) / sum(rows))
        found.append(
            {
                "processes": ranks,
                "bags_each": bags,
                "draws": DRAWS,
                "largest_bag_under_mean": under,
                "at_home_median": round(statistics.median(home), 3),
                "spread_largest": round(max(spread), 4),
                "rows_moved_median": round(statistics.median(moved), 3),
            }
        )
    return found


def two_processes() -> dict[str, Any]:
    """Return the largest differences of outputs and gradients between two processes and one."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        text_model(folder / "text")
        began = time.perf_counter()
        lead([sys.executable, rank_work.__file__], {"folder": place}, 2, print)
        took = time.perf_counter() - began
        outputs, gradients = [], []
        for case in rank_work.CASES:
            shares = rank_work.records_of(case)
            records = [record for share in shares for record in share]
            graph = rank_work.graph()
            expected = graph(batch_of(rank_work.SCHEMA, records), PLAIN).outputs
            rank_work.loss_of(expected, len(records)).backward()
            found = [load_file(folder / f"{case}-{rank}.safetensors") for rank in range(2)]
            together = torch.cat([each.pop("outputs") for each in found])
            outputs.append(float((together - expected).detach().abs().max()))
            for name, value in rank_work.gradients_of(graph).items():
                gradients.append(float((found[0][f"gradient.{name}"] - value).abs().max()))
    return {
        "cases": list(rank_work.CASES),
        "largest_difference_of_outputs": max(outputs),
        "largest_difference_of_gradients": max(gradients),
        "seconds": round(took, 2),
    }


def pruning(schema: Schema) -> dict[str, dict[str, float]]:
    """Return what half of the channels leaves of parameters and operations, for encoders of pictures."""
    found = {}
    for spec in schema:
        if spec.kind not in ("ct", "wsi"):
            continue
        alone = Schema((spec,))
        whole, pruned = fresh(alone, seed=0), fresh(alone, seed=0)
        prune(pruned, spec.name, 0.5)
        found[spec.name] = {
            "parameters": round(_parameters(pruned, spec.name) / _parameters(whole, spec.name), 4),
            "operations": round(_operations(pruned, spec.name) / _operations(whole, spec.name), 4),
        }
    return found


def _parameters(graph: FusionGraph, name: str) -> int:
    return sum(each.numel() for each in graph.encoders[name].parameters())


def _operations(graph: FusionGraph, name: str) -> int:
    part = batch_of(graph.schema, made_up(graph.schema, [[True]])).parts[name]
    return flops(lambda: encode(graph.encoders[name], part))


def worth_of_pruned(train: Cohort, test: Cohort, *, seeds: int, training: Training) -> dict[str, Any]:
    """
    Return how well models tell the labels of a planted cohort, with whole encoders of pictures and half ones.

    Both are trained alike: projections and fusion first, then encoders, of which the half ones lose their
    channels in the middle of that.
    """
    found: dict[str, list[float]] = {"whole": [], "half": []}
    for seed, (name, share) in itertools.product(range(seeds), (("whole", 0.0), ("half", 0.5))):
        policies = {kind: {"prune": share} for kind in ("ct", "wsi")}
        graph = fresh(read_schema(SCHEMA), seed=0)  # whose vectors the cohorts hold
        asked = {"source": "unused", "result_path": "unused", "schema": SCHEMA, "seed": seed}
        spec = read_spec({**asked, "training": training, "policies": policies})
        vectors: dict[str, Vectors] = {}
        for _, how in stages(spec, Plan(batch=16)):
            if how.prune:
                vectors = pruned(graph, marked(train, ("notes",)).load, len(train), how, Team())
            encoded = [kind for kind, policy in how.policies.items() if policy.frozen]
            examples = marked(train, encoded)
            now = replace(examples, vectors={**examples.vectors, **vectors})
            Trainer(graph, now, how).run(lambda course, total: None)
        every = figures(scored(graph, test, ("notes",)), dense=False)
        found[name].append(every["ct+wsi+notes"]["auroc"])
    means = {name: round(statistics.mean(values), 4) for name, values in found.items()}
    return {"auroc": found, "mean": means, "loss": round(means["whole"] - means["half"], 4)}
