"""A model in a folder: ``model.json`` and ``weights.safetensors``. Nothing is pickled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.prune import channel_maps, narrow
from airflow_provider_llmbatch.engine.fusion.schema import Schema, read_schema
from airflow_provider_llmbatch.engine.fusion.store import write_file
from airflow_provider_llmbatch.errors import ConfigurationError, InputError

FORMAT = 2


def fresh(schema: Schema, *, seed: int, outputs: int = 1) -> FusionGraph:
    """Return a model whose weights are random, but for those of texts; the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FusionGraph(schema, outputs=outputs).eval()


def save_model(
    graph: FusionGraph, folder: Path, about: dict[str, Any], *, trained: Collection[str] = ()
) -> None:
    """
    Write a model.

    :param about: further words for ``model.json``, such as how it was trained.
    :param trained: modalities whose encoders were trained: a text encoder is written only then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = [spec.name for spec in graph.schema if spec.kind == "note" and spec.name in trained]
    own = {
        name: value.contiguous() for name, value in graph.state_dict().items() if _is_own(graph, name, texts)
    }
    write_file(folder / "weights.safetensors", save(own))
    outputs = graph.fusion.head.out_features
    facts = {"format": FORMAT, "schema": graph.schema.to_json(), "outputs": outputs, "about": about}
    facts["texts"] = texts
    if pruned := channel_maps(graph):
        facts["pruned"] = pruned
    write_file(folder / "model.json", json.dumps(facts, indent=1).encode())


def load_model(folder: Path, schema: Schema) -> FusionGraph:
    """
    Read a model.

    :param schema: what the run reads; must be the model's, but for where the text model lies.
    :raises ConfigurationError: when it is no model, or one of another schema.
    """
    try:
        facts = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        weights = load((folder / "weights.safetensors").read_bytes())
        theirs = read_schema(facts["schema"])
        if facts["format"] != FORMAT or _comparable(theirs) != _comparable(schema):
            raise ConfigurationError(
                f"The model in {folder.name} was made for {' + '.join(theirs.names)} with other options than "
                f"this task's schema ({' + '.join(schema.names)}). Give the schema of the model."
            )
        graph = FusionGraph(schema, outputs=int(facts["outputs"]))
        narrow(graph, facts.get("pruned", {}))
        lacking = graph.load_state_dict(weights, strict=False)
    except ConfigurationError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ConfigurationError(
            f"The model in {folder.name} cannot be read ({type(error).__name__}); give a folder with "
            "model.json and weights.safetensors."
        ) from error
    if lacking.unexpected_keys or any(_is_own(graph, name, facts["texts"]) for name in lacking.missing_keys):
        raise ConfigurationError(f"The model in {folder.name} has other layers than this version builds.")
    return graph.eval()


def classes_of(labels: Sequence[Any]) -> list[Any]:
    """
    Return what labels can be, in the order of their names; the second of two is the one that scores speak of.

    :raises InputError: when they are all alike.
    """
    classes = sorted(set(labels), key=str)
    if len(classes) < 2:
        raise InputError("The labels of the source are all alike; give records of two kinds at least.")
    return classes


def targets_of(labels: Sequence[Any], classes: Sequence[Any]) -> Tensor:
    """
    Return which class each label is: (records,) of int64.

    :raises InputError: when there are others.
    """
    places = {str(each): place for place, each in enumerate(classes)}
    unknown = sum(str(label) not in places for label in labels)
    if unknown:
        raise InputError(
            f"{unknown} of {len(labels)} labels are none of the model's {len(classes)} classes; take these "
            "records out of the source, or name the model that knows them."
        )
    return torch.tensor([places[str(label)] for label in labels])


def read_classes(folder: Path) -> list[Any]:
    """
    Return the classes of a model.

    :raises ConfigurationError: when it says of none.
    """
    try:
        classes = json.loads((folder / "model.json").read_text(encoding="utf-8"))["about"]["classes"]
    except (OSError, ValueError, KeyError, TypeError):
        classes = None
    if not isinstance(classes, list):
        raise ConfigurationError(f"The model in {folder.name} does not say its classes; train it again.")
    return classes


def digest(graph: FusionGraph) -> str:
    """Return the SHA-256 of all weights, those of texts included, as 64 hex digits."""
    found = hashlib.sha256()
    for name, value in sorted(graph.state_dict().items()):
        found.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
        found.update(value.contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _is_own(graph: FusionGraph, name: str, texts: Collection[str]) -> bool:
    """
    Whether a weight is the model's; those of a text encoder that was not trained stay in its own folder.

    :param texts: modalities whose text encoders were.
    """
    others = [spec.name for spec in graph.schema if spec.kind == "note" and spec.name not in texts]
    return not name.startswith(tuple(f"encoders.{other}." for other in others))


def _comparable(schema: Schema) -> list[Any]:
    kept = schema.to_json()
    for each in kept:
        each["options"].pop("text_model", None)
        each["options"].pop("series_uid", None)
        each["options"].pop("max_chars", None)
    return kept
