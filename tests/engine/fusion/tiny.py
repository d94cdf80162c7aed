"""A model small enough to train in a test, and examples of it that lie in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from airflow_provider_llmbatch.engine.fusion.encoders.text import BertEncoder, _names
from airflow_provider_llmbatch.engine.fusion.examples import Examples, Vectors
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.looks import How
from airflow_provider_llmbatch.engine.fusion.model import fresh
from airflow_provider_llmbatch.engine.fusion.policy import Training, read_policies
from airflow_provider_llmbatch.engine.fusion.schema import Schema, read_schema
from tests.engine.fusion.counting import batch_of

BERT = {
    **{"model_type": "bert", "hidden_act": "gelu", "hidden_size": 32, "intermediate_size": 64},
    **{"num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 9001, "type_vocab_size": 2},
    **{"max_position_embeddings": 256, "layer_norm_eps": 1e-12},
}
#: A token that no made-up note has.
RARE = 9000


def text_model(folder: Path) -> Path:
    """Write a BERT of random weights, without a tokenizer."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(BERT))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        weights = BertEncoder(BERT).state_dict()
    held = {theirs: weights[ours].contiguous() for ours, theirs in _names(BERT["num_hidden_layers"])}
    save_file(held, str(folder / "model.safetensors"))
    return folder


def tiny_schema(text: Path) -> Schema:
    return read_schema(
        {
            "ct": {"kind": "ct", "shape": [8, 16, 16]},
            "wsi": {"kind": "wsi", "patch_px": 32, "max_patches": 2},
            "notes": {"kind": "note", "text_model": str(text)},
        }
    )


def how(
    schema: Schema, policies: Mapping[str, Any] | None = None, *, plan: Plan | None = None, **more
) -> How:
    kept = {name: more.pop(name) for name in ("batch", "seed", "epochs") if name in more}
    return How(
        plan=plan or Plan(),
        policies=read_policies(policies or {}, schema),
        training=Training(**more),
        **{"batch": 4, "seed": 0, "epochs": 2, "head_rate": 3e-3, **kept},
    )


def examples_of(
    graph: FusionGraph, records: Sequence[Mapping[str, np.ndarray]], targets: Sequence[int], *, frozen=()
) -> Examples:
    """Return examples of decoded records; what is frozen is encoded once, as it is in a run."""
    vectors = {}
    with torch.no_grad():
        encoded = graph(batch_of(graph.schema, records), Plan()).vectors
    for name, values in encoded.items():
        rows = torch.tensor([number for number, record in enumerate(records) if name in record])
        good = torch.isfinite(values).all(dim=1)  # the others count as missing in what windows store
        places = torch.full((len(records),), -1)
        places[rows[good]] = torch.nonzero(good).squeeze(1)
        vectors[name] = Vectors(values=values, places=places)
    anew = [{name: array for name, array in each.items() if name not in frozen} for each in records]
    return Examples(
        targets=torch.tensor(targets),
        vectors=vectors,
        load=lambda batches: ([anew[example] for example in batch] for batch in batches),
    )


def fresh_tiny(schema: Schema, *, outputs: int = 1) -> FusionGraph:
    return fresh(schema, seed=0, outputs=outputs)
