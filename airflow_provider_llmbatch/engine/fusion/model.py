"""A model in a folder: ``model.json`` and ``weights.safetensors``. Nothing is pickled."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.prune import channel_maps, narrow
from airflow_provider_llmbatch.engine.fusion.schema import Schema, read_schema
from airflow_provider_llmbatch.engine.fusion.store import write_file
from airflow_provider_llmbatch.errors import ConfigurationError

FORMAT = 1


def fresh(schema: Schema, *, seed: int, outputs: int = 1) -> FusionGraph:
    """Return a model whose weights are random, but for those of texts; the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FusionGraph(schema, outputs=outputs).eval()


def save_model(graph: FusionGraph, folder: Path, about: dict[str, Any]) -> None:
    """
    Write a model.

    :param about: further words for ``model.json``, such as how it was fitted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = {name: value.contiguous() for name, value in graph.state_dict().items() if _is_own(graph, name)}
    write_file(folder / "weights.safetensors", save(own))
    outputs = graph.fusion.head.out_features
    facts = {"format": FORMAT, "schema": graph.schema.to_json(), "outputs": outputs, "about": about}
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
    if lacking.unexpected_keys or any(_is_own(graph, name) for name in lacking.missing_keys):
        raise ConfigurationError(f"The model in {folder.name} has other layers than this version builds.")
    return graph.eval()


def digest(graph: FusionGraph) -> str:
    """Return the SHA-256 of all weights, those of texts included, as 64 hex digits."""
    found = hashlib.sha256()
    for name, value in sorted(graph.state_dict().items()):
        found.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
        found.update(value.contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _is_own(graph: FusionGraph, name: str) -> bool:
    """Whether a weight is the model's; those of a text encoder stay in its own folder."""
    texts = tuple(f"encoders.{spec.name}." for spec in graph.schema if spec.kind == "note")
    return not (texts and name.startswith(texts))


def _comparable(schema: Schema) -> list[Any]:
    kept = schema.to_json()
    for each in kept:
        each["options"].pop("text_model", None)
        each["options"].pop("series_uid", None)
        each["options"].pop("max_chars", None)
    return kept
