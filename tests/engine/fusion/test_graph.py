"""The graph: rows alone and together, what absence costs, what a poisoned row does."""

from __future__ import annotations

import itertools

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import numpy as np
import torch

from airflow_provider_llmbatch.engine.fusion.fuse import LatentFusion
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.model import digest, fresh, load_model, save_model
from airflow_provider_llmbatch.engine.fusion.precision import finite_guard
from airflow_provider_llmbatch.engine.fusion.schema import read_schema
from airflow_provider_llmbatch.errors import ConfigurationError
from tests.engine.fusion.conftest import SCHEMA
from tests.engine.fusion.counting import (
    PLAIN,
    batch_of,
    flops,
    made_up,
    presence,
    rows_of_encoders,
    zero_filled,
)

SMALL = read_schema(SCHEMA)
PATTERNS = [list(bits) for bits in itertools.product([False, True], repeat=3) if any(bits)]


@pytest.fixture(scope="module")
def graph():
    return fresh(SMALL, seed=0, outputs=2)


def test_each_of_64_records_of_all_patterns_gets_what_it_gets_alone(graph):
    there = [PATTERNS[number % len(PATTERNS)] for number in range(64)]
    records = made_up(SMALL, there)
    with torch.inference_mode():
        together = graph(batch_of(SMALL, records), PLAIN)
        alone = [graph(batch_of(SMALL, [record]), PLAIN) for record in records]
    for name in ("embedding", "outputs", "attention"):
        difference = getattr(together, name) - torch.cat([getattr(each, name) for each in alone])
        assert difference.abs().max() <= 1e-5, name
    assert rows_of_encoders(graph, batch_of(SMALL, records)) == {
        name: int(count) for name, count in zip(SMALL.names, np.sum(there, axis=0), strict=True)
    }


def test_a_batch_costs_what_its_records_cost_alone(graph):
    there = [PATTERNS[number % len(PATTERNS)] for number in range(14)]
    records = made_up(SMALL, there)
    together = flops(lambda: graph(batch_of(SMALL, records), PLAIN))
    alone = sum(flops(lambda record=record: graph(batch_of(SMALL, [record]), PLAIN)) for record in records)
    assert together <= 1.02 * alone


def test_sparse_records_cost_a_third_of_a_dense_batch():
    pictures = read_schema({name: SCHEMA[name] for name in ("ct", "wsi")})
    graph = fresh(pictures, seed=0)
    there = presence(24, (0.25, 0.25, 0.92))[:, :2]
    records = made_up(pictures, there)
    sparse = flops(lambda: graph(batch_of(pictures, [each for each in records if each]), PLAIN))
    dense = flops(lambda: graph(batch_of(pictures, zero_filled(pictures, records)), PLAIN))
    assert dense / sparse >= 3


def test_what_is_absent_gets_no_attention_and_shares_add_up(graph):
    there = [[True, False, True], [False, False, True]]
    with torch.inference_mode():
        found = graph(batch_of(SMALL, made_up(SMALL, there)), PLAIN)
    assert (found.attention[:, 1:][~torch.tensor(there)] == 0).all()
    assert found.attention.sum(dim=1) == pytest.approx([1.0, 1.0])
    assert found.present.tolist() == there


def test_a_vector_that_is_not_finite_counts_as_absent_and_harms_no_other_row(graph):
    records = made_up(SMALL, [[True, True, True]] * 3)
    with torch.inference_mode():
        vectors = dict(graph(batch_of(SMALL, records), PLAIN).vectors)
        rows = {name: range(3) for name in vectors}
        clean = graph.fuse(vectors, rows, 3)
        vectors["notes"] = vectors["notes"].clone()
        vectors["notes"][1, 7] = float("nan")
        poisoned = graph.fuse(vectors, rows, 3)
        without = graph.fuse({**vectors, "notes": vectors["notes"][[0, 2]]}, {**rows, "notes": [0, 2]}, 3)
    assert poisoned.non_finite == {"notes": 1}
    assert poisoned.present[1].tolist() == [True, True, False]
    assert torch.equal(poisoned.embedding[[0, 2]], clean.embedding[[0, 2]])
    assert torch.equal(poisoned.embedding, without.embedding)


def test_the_guard_keeps_gradients_of_a_bad_row_from_the_others():
    values = torch.tensor([[1.0, 2.0], [float("inf"), 1.0]], requires_grad=True)
    clean, good = finite_guard(values)
    clean.sum().backward()
    assert good.tolist() == [True, False]
    assert values.grad.tolist() == [[1, 1], [0, 0]]


def test_a_record_with_nothing_is_still_a_number():
    fusion = LatentFusion(modalities=2, width=16)
    found, outputs, attention = fusion(torch.full((1, 2, 16), torch.nan), torch.zeros(1, 2, dtype=torch.bool))
    assert all(torch.isfinite(each).all() for each in (found, outputs, attention))


def test_a_note_of_many_windows_does_not_change_its_neighbours(graph):
    schema = read_schema({"notes": {"kind": "note"}})
    short, long = made_up(schema, [[True], [True]])
    long["notes"] = np.concatenate([np.where(short["notes"] > 0, short["notes"], 2023)] * 3)
    own = fresh(schema, seed=0)
    with torch.inference_mode():
        together = own(batch_of(schema, [short, long]), PLAIN).embedding[0]
        alone = own(batch_of(schema, [short]), PLAIN).embedding[0]
    assert (together - alone).abs().max() <= 1e-5


def test_half_precision_of_a_branch_ends_at_its_border(graph):
    records = made_up(SMALL, [[True, True, True]] * 2)
    half = Plan(dtypes={"note": "bfloat16", "ct": "bfloat16"})
    with torch.inference_mode():
        found, plain = (graph(batch_of(SMALL, records), plan) for plan in (half, PLAIN))
    assert found.embedding.dtype == torch.float32
    assert 0 < (found.embedding - plain.embedding).abs().max() < 0.2


def test_a_model_is_the_same_for_a_seed_and_survives_its_folder(tmp_path, graph):
    assert digest(fresh(SMALL, seed=0, outputs=2)) == digest(graph)
    assert digest(fresh(SMALL, seed=1, outputs=2)) != digest(graph)
    save_model(graph, tmp_path / "model", {"records": 1})
    assert digest(load_model(tmp_path / "model", SMALL)) == digest(graph)
    held = sum(path.stat().st_size for path in (tmp_path / "model").iterdir())
    assert held < 10 * 2**20  # the text model's 90 MB stay where they are


def test_a_folder_that_is_no_model_or_another_schemas_is_refused(tmp_path, graph):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_model(tmp_path, SMALL)
    save_model(graph, tmp_path / "model", {})
    with pytest.raises(ConfigurationError, match="Give the schema of the model"):
        load_model(tmp_path / "model", read_schema("ct+wsi+notes"))
    weights = tmp_path / "model" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_model(tmp_path / "model", SMALL)
