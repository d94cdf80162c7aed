"""Which modalities a record can have, and in what form they go into a batch. Standard library only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from airflow_provider_llmbatch.errors import ConfigurationError

Kind = Literal["ct", "wsi", "note", "facts"]

#: Tokens of a window of text, with its two marks.
WINDOW = 256
#: What each kind is read with unless a schema says otherwise.
DEFAULTS: Mapping[Kind, Mapping[str, Any]] = {
    # slices, rows, columns of the grid, and its spacing in mm
    "ct": {"shape": [48, 96, 96], "spacing_mm": [5.0, 4.0, 4.0], "series_uid": None},
    # pixels of a patch's side, micrometres of a pixel, most patches of a slide
    "wsi": {"patch_px": 224, "target_mpp": 0.5, "max_patches": 64},
    # folder of a BERT (config.json, model.safetensors, tokenizer.json); None takes an installed package
    "note": {"text_model": None, "max_chars": 1_000_000},
    "facts": {"buckets": 4096},
}
#: Bytes of a number in a batch.
_WIDTHS = {"int16": 2, "uint8": 1, "int32": 4, "float32": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModalitySpec:
    """One modality of a schema."""

    #: also the name of the field in a row of the source
    name: str
    kind: Kind
    #: see :data:`DEFAULTS`
    options: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, option: str) -> Any:
        return self.options.get(option, DEFAULTS[self.kind][option])

    @property
    def dtype(self) -> str:
        """Type of the numbers in a batch, that of the file: int16 HU, uint8 RGB, int32 tokens."""
        return {"ct": "int16", "wsi": "uint8", "note": "int32", "facts": "float32"}[self.kind]

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return _WIDTHS[self.dtype]

    @property
    def is_ragged(self) -> bool:
        """Whether records differ in how many elements they have."""
        return self.kind != "ct"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one element: the volume, a patch, a window of tokens, a fact as (bucket, weight)."""
        if self.kind == "ct":
            return (1, *self["shape"])
        if self.kind == "wsi":
            return (3, self["patch_px"], self["patch_px"])
        return (WINDOW,) if self.kind == "note" else (2,)

    def to_json(self) -> dict[str, Any]:
        """Return the whole spec as JSON values, defaults included."""
        return {"name": self.name, "kind": self.kind, "options": {**DEFAULTS[self.kind], **self.options}}


@dataclass(frozen=True, slots=True)
class Schema:
    """The modalities of a run, in their order."""

    modalities: tuple[ModalitySpec, ...]

    def __iter__(self) -> Any:
        return iter(self.modalities)

    def __len__(self) -> int:
        return len(self.modalities)

    def __getitem__(self, name: str) -> ModalitySpec:
        return next(spec for spec in self.modalities if spec.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the modalities."""
        return tuple(spec.name for spec in self.modalities)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the schema as JSON values."""
        return [spec.to_json() for spec in self.modalities]


#: Schemas by name.
PRESETS: Mapping[str, tuple[tuple[str, Kind], ...]] = {
    "ct+wsi+notes": (("ct", "ct"), ("wsi", "wsi"), ("notes", "note")),
    "ct+wsi+notes+facts": (("ct", "ct"), ("wsi", "wsi"), ("notes", "note"), ("facts", "facts")),
}
_RESERVED = ("id", "label", "metadata")


def read_schema(value: Any) -> Schema:
    """
    Read a schema: the name of a preset, or ``{name: {"kind": …, option: value}}``.

    :raises ConfigurationError: naming what is unknown and what there is.
    """
    if isinstance(value, Schema):
        return value
    if isinstance(value, str):
        if value not in PRESETS:
            raise ConfigurationError(f"schema is {value!r}; set it to one of {', '.join(PRESETS)}.")
        return Schema(tuple(ModalitySpec(name=name, kind=kind) for name, kind in PRESETS[value]))
    if isinstance(value, list):
        value = {each["name"]: {"kind": each["kind"], **each["options"]} for each in value}
    if not isinstance(value, Mapping) or not value:
        raise ConfigurationError("schema is neither the name of a preset nor a mapping of modalities.")
    return Schema(tuple(_modality(name, options) for name, options in value.items()))


def _modality(name: Any, options: Any) -> ModalitySpec:
    where = f"schema, modality {name!r}"
    if not isinstance(name, str) or not name.isidentifier() or name in _RESERVED:
        raise ConfigurationError(f"{where}: take a plain word that is none of {', '.join(_RESERVED)}.")
    if not isinstance(options, Mapping) or options.get("kind") not in get_args(Kind):
        raise ConfigurationError(f"{where}: give a mapping whose kind is one of {', '.join(get_args(Kind))}.")
    given = {key: value for key, value in options.items() if key != "kind"}
    kind: Kind = options["kind"]
    if unknown := set(given) - set(DEFAULTS[kind]):
        raise ConfigurationError(
            f"{where}: {', '.join(sorted(unknown))} is no option; there are {', '.join(DEFAULTS[kind])}."
        )
    return dataclasses.replace(ModalitySpec(name=name, kind=kind), options=given)
