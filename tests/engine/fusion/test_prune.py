"""Pruning: channels are gone, the map says which, a folder brings it back; other encoders are refused."""

from __future__ import annotations

import json
import sys

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import torch

from airflow_provider_llmbatch.engine.fusion.model import digest, fresh, load_model, save_model
from airflow_provider_llmbatch.engine.fusion.prune import channel_maps, prune
from airflow_provider_llmbatch.engine.fusion.schema import read_schema
from airflow_provider_llmbatch.errors import ConfigurationError
from tests.engine.fusion.conftest import SCHEMA
from tests.engine.fusion.counting import PLAIN, batch_of, flops, made_up

PICTURES = read_schema({name: SCHEMA[name] for name in ("ct", "wsi")})
RECORDS = made_up(PICTURES, [[True, True], [True, False], [False, True]])


@pytest.fixture(scope="module")
def whole():
    graph = fresh(PICTURES, seed=0)
    # As a fit leaves them: a projection must lose the places of the channels that go.
    for projection in graph.projections.values():
        projection.standardise(torch.rand(5, projection.linear.in_features))
    return graph


@pytest.fixture
def pruned(whole):
    graph = fresh(PICTURES, seed=0)
    graph.load_state_dict(whole.state_dict())
    for name in PICTURES.names:
        prune(graph, name, 0.5)
    return graph


@pytest.fixture(scope="module")
def every_kind():
    return fresh(read_schema({**SCHEMA, "facts": {"kind": "facts"}}), seed=0)


def said(graph):
    with torch.inference_mode():
        return graph(batch_of(PICTURES, RECORDS), PLAIN)


@pytest.mark.parametrize("name", PICTURES.names)
def test_half_of_the_channels_is_under_a_third_of_parameters_and_operations(whole, pruned, name):
    alone = read_schema({name: SCHEMA[name]})
    batch = batch_of(alone, made_up(alone, [[True]]))
    part = batch.parts[name]
    given = (part.values,) if name == "ct" else (part.values, part.lengths)
    before, after = (graph.encoders[name] for graph in (whole, pruned))
    assert sum(map(torch.numel, after.parameters())) <= 0.30 * sum(map(torch.numel, before.parameters()))
    assert flops(lambda: after(*given)) <= 0.30 * flops(lambda: before(*given))
    assert after(*given).shape == (1, after.width)


@pytest.mark.parametrize("name", PICTURES.names)
def test_what_is_left_are_the_channels_that_the_map_names(whole, pruned, name):
    kept = channel_maps(pruned)[name]
    before, after = (dict(graph.encoders[name].blocks.named_modules()) for graph in (whole, pruned))
    for layer, read in (("0.second", "0.first"), ("3.first", "2.second")):
        rows, columns = kept[layer], kept[read]
        assert torch.equal(after[layer].weight, before[layer].weight[rows][:, columns]), layer
    last = kept["3.second"]
    places = last if name == "wsi" else [*last, *(128 + channel for channel in last)]
    for part in ("mean", "spread", "linear.weight"):
        found, held = (
            graph.projections[name].get_buffer(part)
            if part != "linear.weight"
            else graph.projections[name].linear.weight
            for graph in (pruned, whole)
        )
        assert torch.equal(found, held[..., places]), part


def test_a_pruned_model_comes_back_from_its_folder_without_the_library_that_pruned_it(
    pruned, tmp_path, monkeypatch
):
    save_model(pruned, tmp_path / "m", {})
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    again = load_model(tmp_path / "m", PICTURES)
    assert digest(again) == digest(pruned)
    for name in ("embedding", "outputs", "attention"):
        assert torch.equal(getattr(said(again), name), getattr(said(pruned), name)), name
    assert json.loads((tmp_path / "m" / "model.json").read_text())["pruned"] == channel_maps(pruned)
    with pytest.raises(ConfigurationError, match=r"install airflow-provider-llmbatch\[fusion-prune\]"):
        prune(again, "ct", 0.5)


def test_a_map_that_does_not_fit_the_weights_is_no_model(pruned, tmp_path):
    save_model(pruned, tmp_path / "m", {})
    file = tmp_path / "m" / "model.json"
    facts = json.loads(file.read_text())
    facts["pruned"]["ct"]["1.second"].pop()
    file.write_text(json.dumps(facts))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_model(tmp_path / "m", PICTURES)


def test_what_is_pruned_twice_is_told_in_channels_of_the_whole_encoder(pruned):
    once = channel_maps(pruned)["ct"]
    prune(pruned, "ct", 0.5)
    twice = channel_maps(pruned)["ct"]
    assert len(twice["3.second"]) == 32
    assert all(set(twice[layer]) <= set(once[layer]) for layer in once)
    assert torch.isfinite(said(pruned).embedding).all()
    for _ in range(2):
        prune(pruned, "ct", 0.5)
    assert torch.isfinite(said(pruned).embedding).all()
    with pytest.raises(ConfigurationError, match="no channel of its encoder can go"):
        prune(pruned, "ct", 0.5)


def test_a_pruned_model_can_be_trained_on(pruned):
    pruned.train()
    pruned(batch_of(PICTURES, RECORDS), PLAIN).outputs.sum().backward()
    lacking = [name for name, value in pruned.named_parameters() if value.grad is None]
    assert not lacking


@pytest.mark.parametrize(
    ("name", "share", "words"),
    [
        ("notes", 0.5, "only encoders of ct and wsi can be pruned"),
        ("facts", 0.5, "of kind facts"),
        ("ct", 0.0, "above 0 and up to 0.5"),
        ("ct", 0.75, "above 0 and up to 0.5"),
    ],
)
def test_what_cannot_be_pruned_is_refused_with_words(every_kind, name, share, words):
    before = digest(every_kind)
    with pytest.raises(ConfigurationError, match=words):
        prune(every_kind, name, share)
    assert digest(every_kind) == before
