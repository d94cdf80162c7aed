"""Branches are trained each by itself: what breaks in one does not reach the others, and memory is bought."""

from __future__ import annotations

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import numpy as np
import torch

from airflow_provider_llmbatch.engine.fusion.encoders.recompute import set_recompute
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.looks import hide
from airflow_provider_llmbatch.engine.fusion.team import Team
from airflow_provider_llmbatch.engine.fusion.train import Trainer
from airflow_provider_llmbatch.errors import ConfigurationError
from tests.engine.fusion.counting import PLAIN, batch_of, made_up, saved_bytes
from tests.engine.fusion.tiny import RARE, examples_of, fresh_tiny, how, text_model, tiny_schema

ALL = torch.arange(8)
TARGETS = [0, 1] * 4
UNFROZEN = {"notes": {"frozen": False}}


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    return tiny_schema(text_model(tmp_path_factory.mktemp("bert")))


@pytest.fixture
def records(schema):
    there = [[True, True, True], [True, True, True], [False, True, True], [True, True, False]] * 2
    return made_up(schema, there, seed=3)


def weights(graph) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in graph.state_dict().items()}


def stepped(schema, records, policies=None, *, poisoned=False, **more):
    """Take one step on all records, and return the graph, the trainer and the loss."""
    graph = fresh_tiny(schema)
    if poisoned:
        with torch.no_grad():
            graph.encoders["notes"].words.weight[RARE] = torch.inf
    examples = examples_of(graph, records, TARGETS)
    trainer = Trainer(graph, examples, how(schema, policies, **more))
    (arrays,) = examples.load([ALL.tolist()])
    return graph, trainer, trainer.step(ALL, arrays)


def part(graph, *names: str) -> dict[str, torch.Tensor]:
    starts = tuple(f"{kind}.{name}." for name in names for kind in ("encoders", "projections"))
    return {
        name: value for name, value in graph.state_dict().items() if name.startswith((*starts, "fusion."))
    }


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("row", [0, 4, 5, 6])
def test_a_poisoned_note_stops_the_step_of_notes_alone_and_pictures_step_as_if_it_were_missing(
    schema, records, row
):
    poisoned = [dict(record) for record in records]
    poisoned[row]["notes"] = poisoned[row]["notes"].copy()
    poisoned[row]["notes"][0, 5] = RARE
    without = [dict(record) for record in records]
    del without[row]["notes"]
    bad, trainer, loss = stepped(schema, poisoned, UNFROZEN, poisoned=True)
    good, other, other_loss = stepped(schema, without, UNFROZEN, poisoned=True)
    assert np.isfinite(loss)
    assert loss == other_loss
    assert dict(trainer.skipped) == {"notes": 1}
    assert dict(other.skipped) == {}
    assert trainer.course.non_finite == {"notes": 1}
    assert same(part(bad, "ct", "wsi"), part(good, "ct", "wsi"))
    untouched = part(fresh_tiny(schema), "ct")["encoders.ct.blocks.0.first.weight"]
    assert not torch.equal(untouched, bad.encoders["ct"].blocks[0].first.weight)
    for name, value in bad.encoders["notes"].named_parameters():
        if name != "words.weight":
            assert torch.equal(value, fresh_tiny(schema).encoders["notes"].get_parameter(name)), name


def test_gradients_of_a_step_go_to_every_branch_that_is_trained_and_to_no_frozen_one(schema, records):
    graph, _, _ = stepped(schema, records, {"ct": {"frozen": True}})
    before = fresh_tiny(schema)
    for name in ("ct", "notes"):
        assert same(
            dict(graph.encoders[name].named_parameters()), dict(before.encoders[name].named_parameters())
        )
    for branch in (graph.encoders["wsi"], graph.projections["ct"], graph.projections["notes"], graph.fusion):
        assert any(each.grad is not None and each.grad.abs().sum() > 0 for each in branch.parameters())


def gradients(schema, records, *, recompute: bool, dtype: str = "float32", outer: torch.dtype | None = None):
    graph = fresh_tiny(schema).train()
    for encoder in graph.encoders.values():
        set_recompute(encoder, recompute)
    plan = Plan(dtypes=dict.fromkeys(("wsi", "note"), dtype))
    with torch.autocast("cpu", outer, enabled=outer is not None):
        found = graph(batch_of(schema, records), plan).outputs.sum()
    found.backward()
    return {name: each.grad for name, each in graph.named_parameters() if each.grad is not None}


@pytest.mark.parametrize(
    ("dtype", "outer"), [("float32", None), ("bfloat16", None), ("bfloat16", torch.float16)]
)
def test_gradients_of_branches_that_are_computed_again_are_those_of_branches_that_are_kept(
    schema, records, dtype, outer
):
    plain = gradients(schema, records, recompute=False, dtype=dtype, outer=outer)
    again = gradients(schema, records, recompute=True, dtype=dtype, outer=outer)
    assert plain.keys() == again.keys()
    assert max((plain[name] - again[name]).abs().max() for name in plain) <= 1e-6
    if dtype == "bfloat16":
        exact = gradients(schema, records, recompute=False)
        assert any(not torch.equal(exact[name], plain[name]) for name in plain)


def test_the_lean_plan_keeps_at_most_058_of_the_bytes_between_the_layers(schema, records):
    graph = fresh_tiny(schema).train()
    batch = batch_of(schema, records)
    half = Plan(dtypes=dict.fromkeys(("ct", "wsi", "note"), "bfloat16"))
    plain = saved_bytes(lambda: graph(batch, PLAIN).outputs.sum())
    for encoder in graph.encoders.values():
        set_recompute(encoder, True)
    lean = saved_bytes(lambda: graph(batch, half).outputs.sum())
    assert 0 < lean <= 0.58 * plain


def test_in_float16_a_branch_steps_under_a_scaled_loss_and_an_overflow_stops_it_alone(schema, records):
    graph, trainer, loss = stepped(schema, records, {"wsi": {"dtype": "float16"}})
    _, _, exact = stepped(schema, records)
    assert loss == pytest.approx(exact, abs=1e-2)
    assert dict(trainer.skipped) == {"wsi": 1}  # the scale is 65536 at first
    new = fresh_tiny(schema)
    assert torch.equal(graph.encoders["wsi"].gate.weight, new.encoders["wsi"].gate.weight)
    assert not torch.equal(graph.projections["ct"].linear.weight, new.projections["ct"].linear.weight)
    (arrays,) = trainer._examples.load([ALL.tolist()])
    for _ in range(14):
        trainer.step(ALL, arrays)
    assert trainer.skipped["wsi"] < 15
    assert not torch.equal(graph.encoders["wsi"].gate.weight, new.encoders["wsi"].gate.weight)


def test_volumes_are_trained_in_single_precision_on_a_cpu(schema, records):
    fast = Plan(dtypes=dict.fromkeys(("ct", "wsi", "note"), "bfloat16"))
    graph, _, _ = stepped(schema, records, plan=fast)
    assert graph.dtypes == {"ct": "float32", "wsi": "bfloat16", "notes": "bfloat16"}
    with pytest.raises(ConfigurationError, match="'ct': dtype is 'bfloat16', in which torch computes wrong"):
        stepped(schema, records, {"ct": {"dtype": "bfloat16"}})
    frozen, _, _ = stepped(schema, records, {"ct": {"dtype": "bfloat16", "frozen": True}})
    assert frozen.dtypes["ct"] == "bfloat16"


def test_an_exchange_meets_gradients_before_anything_has_stepped(schema, records):
    graph = fresh_tiny(schema)
    before, met = weights(graph), []

    class Turning(Team):
        def exchange(self, parameters) -> None:
            met.extend(each for each in parameters if each.grad is not None)
            assert same(weights(graph), before)
            for each in met:
                each.grad.mul_(-1)

    examples = examples_of(graph, records, TARGETS)
    before = weights(graph)
    trainer = Trainer(graph, examples, how(schema), team=Turning())
    before = weights(graph)
    (arrays,) = examples.load([ALL.tolist()])
    trainer.step(ALL, arrays)
    usual, _, _ = stepped(schema, records)
    moved = graph.fusion.head.weight - before["fusion.head.weight"]
    usually = usual.fusion.head.weight - before["fusion.head.weight"]
    assert met
    assert torch.sign(moved).ne(torch.sign(usually)).float().mean() > 0.9


def test_a_long_gradient_of_a_branch_is_cut_and_those_of_others_are_not(schema, records):
    short, _, _ = stepped(schema, records, {"ct": {"clip": 1e-12}})
    usual, _, _ = stepped(schema, records)
    assert same(part(short, "wsi"), part(usual, "wsi"))
    weight = short.encoders["ct"].blocks[0].first.weight
    assert not torch.equal(weight, usual.encoders["ct"].blocks[0].first.weight)
    norm = sum(float(each.grad.square().sum()) for each in short.encoders["ct"].parameters()) ** 0.5
    assert norm <= 1.01e-12


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_hiding_leaves_one_modality_of_those_that_are_there(share):
    chance = torch.Generator().manual_seed(0)
    present = torch.rand(4000, 3, generator=chance) < 0.7
    kept = hide(present, share, chance)
    assert not (kept & ~present).any()
    assert torch.equal(kept.any(dim=1), present.any(dim=1))
    if share == 0.0:
        assert torch.equal(kept, present)
    if share == 0.5:
        patterns, counts = kept[present.all(dim=1)].unique(dim=0, return_counts=True)
        assert len(patterns) == 7
        assert counts.min() > 0.08 * counts.sum()
