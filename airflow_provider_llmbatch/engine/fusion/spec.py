"""What a worker is asked to do: one JSON object. Standard library only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from airflow_provider_llmbatch.engine.fusion.policy import (
    DTYPES,
    BranchPolicy,
    Training,
    read_policies,
    read_training,
)
from airflow_provider_llmbatch.engine.fusion.schema import Schema, read_schema
from airflow_provider_llmbatch.errors import ConfigurationError

Mode = Literal["embed", "predict", "train", "evaluate"]
Deid = Literal["refuse", "warn", "off"]
OnBadInput = Literal["quarantine", "fail"]
OnExisting = Literal["resume", "restart"]
Device = Literal["auto", "cpu", "cuda"]
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "mode": get_args(Mode),
    "deid": get_args(Deid),
    "on_bad_input": get_args(OnBadInput),
    "on_existing": get_args(OnExisting),
    "device": get_args(Device),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A run over the records of a source."""

    #: JSONL, CSV or Parquet on a disk
    source: str
    #: what relative paths in it are seen from; its own folder when None
    base: str | None = None
    #: folder or fsspec URL; each fingerprint gets a folder of its own in it
    result_path: str
    mode: Mode = "embed"
    schema: Schema = field(default_factory=lambda: read_schema("ct+wsi+notes"))
    #: folder of a model, that ``train`` writes and the other modes read; None takes one of random weights,
    #: fixed by the seed, for ``embed``, and for ``train`` the folder ``model`` of the run
    model: str | None = None
    #: JSONL with ``id`` and ``facts`` of records, besides those in the source
    facts: str | None = None
    require: tuple[str, ...] = ()
    min_modalities: int = 1
    on_bad_input: OnBadInput = "quarantine"
    #: share of the records that may be quarantined before the run stops
    max_bad_fraction: float = 0.05
    deid: Deid = "refuse"
    batch_size: int = 8
    #: records of a window: what is stored, and done again after a kill, as one
    chunk_records: int = 64
    device: Device = "auto"
    #: number types by kind of modality, over those of the plan
    dtypes: Mapping[str, str] = field(default_factory=dict)
    #: threads that decode; the plan's when None
    decode_workers: int | None = None
    #: folder of decoded inputs; None keeps none
    cache_path: str | None = None
    on_existing: OnExisting = "resume"
    seed: int = 0
    #: processes that work on it together, with a GPU each where there are some
    nproc: int = 1
    #: whether the task that asks is asked for a plan
    plan_adviser: bool = False
    #: by modality, of ``train``
    policies: Mapping[str, BranchPolicy] = field(default_factory=dict)
    #: of ``train``
    training: Training = field(default_factory=Training)

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON values."""
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        policies = {name: policy.to_json() for name, policy in self.policies.items()}
        nested = {"schema": self.schema.to_json(), "policies": policies, "training": self.training.to_json()}
        return {**values, **nested, "dtypes": dict(self.dtypes)}


def read_spec(data: Mapping[str, Any]) -> Spec:
    """
    Read a spec, and refuse what cannot be done.

    :raises ConfigurationError: naming the field, its value and what it can be.
    """
    unknown = set(data) - {each.name for each in dataclasses.fields(Spec)}
    if unknown:
        raise ConfigurationError(f"The spec has unknown fields: {', '.join(sorted(unknown))}.")
    schema = read_schema(data.get("schema", "ct+wsi+notes"))
    nested = {
        "policies": read_policies(data.get("policies", {}), schema),
        "training": read_training(data.get("training", {})),
    }
    spec = Spec(**{**data, **nested, "schema": schema, "require": tuple(data.get("require", ()))})
    for name, choices in _CHOICES.items():
        if getattr(spec, name) not in choices:
            raise ConfigurationError(
                f"{name} is {getattr(spec, name)!r}; set it to one of {', '.join(choices)}."
            )
    for name in ("min_modalities", "batch_size", "chunk_records", "nproc"):
        if getattr(spec, name) < 1:
            raise ConfigurationError(f"{name} is {getattr(spec, name)}; give a whole number from 1.")
    _check_names(spec)
    if spec.nproc > 1 and spec.plan_adviser:
        raise ConfigurationError(
            f"nproc is {spec.nproc} and plan_adviser is set; it advises one process. Leave one of them out."
        )
    if spec.mode in ("predict", "evaluate") and spec.model is None:
        raise ConfigurationError(
            f"mode is {spec.mode} and model is not set; name the folder of a trained model."
        )
    return spec


def _check_names(spec: Spec) -> None:
    if unknown := set(spec.require) - set(spec.schema.names):
        raise ConfigurationError(
            f"require names {', '.join(sorted(unknown))}; the schema has {', '.join(spec.schema.names)}."
        )
    if spec.min_modalities > len(spec.schema):
        raise ConfigurationError(
            f"min_modalities is {spec.min_modalities}, and the schema has {len(spec.schema)} modalities."
        )
    kinds = {each.kind for each in spec.schema}
    for kind, dtype in spec.dtypes.items():
        if kind not in kinds or dtype not in DTYPES:
            raise ConfigurationError(
                f"dtypes says {kind!r}: {dtype!r}; kinds are {', '.join(sorted(kinds))}, types "
                f"{', '.join(DTYPES)}."
            )
