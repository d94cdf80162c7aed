"""A record's verdict: which of its modalities can be used, found out before anything is decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airflow_provider_llmbatch.engine.fusion.cache import Cache
from airflow_provider_llmbatch.engine.fusion.errors import FusionInputError
from airflow_provider_llmbatch.engine.fusion.records import Record, files_of
from airflow_provider_llmbatch.engine.fusion.schema import ModalitySpec, Schema

#: Returns the array of a modality that was found good.
Decode = Callable[[], NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What makes a record usable."""

    #: modalities without which a record is quarantined
    require: tuple[str, ...] = ()
    min_modalities: int = 1
    #: what a finding of the gate for identities does: ``refuse``, ``warn`` or ``off``
    deid: str = "refuse"
    seed: int = 0


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What can be done with a record."""

    record: Record
    #: how to decode each modality that can be used
    present: dict[str, Decode] = field(default_factory=dict)
    #: by modality, the code of what is wrong with it, and numbers that say where
    bad: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: findings of the gate
    warnings: dict[str, str] = field(default_factory=dict)
    #: code for which the whole record is quarantined
    quarantined: str | None = None

    def drop(self, name: str, error: FusionInputError, rules: Rules) -> None:
        """Take a modality out, and the record with it when the rules say so."""
        self.present.pop(name, None)
        self.bad[name] = (error.code, error.detail)
        self.quarantined = _judged(self, rules)


class Examiner:
    """
    Looks at records.

    :param text_model: folder of the tokenizer, for schemas with notes.
    """

    def __init__(self, schema: Schema, rules: Rules, cache: Cache, text_model: Path | None) -> None:
        self._schema, self._rules, self._cache = schema, rules, cache
        self._windows: Any = None
        if any(spec.kind == "note" for spec in schema):
            from airflow_provider_llmbatch.engine.fusion.readers.notes import Windows

            self._windows = Windows(text_model or Path())
        self._looks: Mapping[str, Callable[..., tuple[Decode, str | None]]] = {
            "ct": self._ct,
            "wsi": self._wsi,
            "note": self._note,
            "facts": self._facts,
        }

    def look(self, record: Record) -> Verdict:
        """Return the verdict on a record."""
        verdict = Verdict(record=record)
        for spec in self._schema:
            if spec.name not in record.inputs:
                continue
            try:
                decode, finding = self._looks[spec.kind](spec, record.inputs[spec.name])
                if finding and self._rules.deid == "refuse":
                    raise FusionInputError(finding, spec.name)
                if finding and self._rules.deid == "warn":
                    verdict.warnings[spec.name] = finding
                verdict.present[spec.name] = decode
            except FusionInputError as error:
                verdict.bad[spec.name] = (error.code, error.detail)
        verdict.quarantined = _judged(verdict, self._rules)
        return verdict

    def nothing(self) -> dict[str, NDArray[Any]]:
        """Return what a dense batch holds where modalities are missing: zeros, and of notes their marks."""
        zeros = {
            spec.name: np.zeros((1, *spec.shape) if spec.is_ragged else spec.shape, spec.dtype)
            for spec in self._schema
        }
        notes = {spec.name: self._windows.nothing() for spec in self._schema if spec.kind == "note"}
        return {**zeros, **notes}

    def _ct(self, spec: ModalitySpec, given: Mapping[str, Any]) -> tuple[Decode, str | None]:
        from airflow_provider_llmbatch.engine.fusion.readers import dicom_load
        from airflow_provider_llmbatch.engine.fusion.readers.dicom_audit import audit_series

        audit = audit_series(Path(given["path"]), given.get("series_uid") or spec["series_uid"])
        dicom_load.check_decoders(audit)
        how = {"ct": dicom_load.VERSION, "shape": spec["shape"], "spacing": spec["spacing_mm"]}
        files = sorted({each.path for each in audit.slices})

        def decode() -> NDArray[Any]:
            return dicom_load.to_grid(dicom_load.load_series(audit), spec["shape"], spec["spacing_mm"])[None]

        return lambda: self._cache.get(files, how, decode), audit.identity

    def _wsi(self, spec: ModalitySpec, given: Mapping[str, Any]) -> tuple[Decode, str | None]:
        from airflow_provider_llmbatch.engine.fusion.readers import deid, wsi

        path = Path(given["path"])
        options = {"patch_px": spec["patch_px"], "max_patches": spec["max_patches"], "seed": self._rules.seed}
        with wsi.open_slide(path) as slide:
            finding = deid.in_slide(slide.associated_images)
            grid = wsi.patch_grid(slide, target_mpp=spec["target_mpp"], **options)

        def decode() -> NDArray[Any]:
            with wsi.open_slide(path) as slide:
                return wsi.read_patches(slide, grid, spec["patch_px"])

        how = {"wsi": wsi.VERSION, "mpp": spec["target_mpp"], **options}
        return lambda: self._cache.get(files_of(path), how, decode), finding

    def _note(self, spec: ModalitySpec, given: Mapping[str, Any]) -> tuple[Decode, str | None]:
        from airflow_provider_llmbatch.engine.fusion.readers import deid, notes

        text = notes.read_text(given, spec["max_chars"])
        return lambda: self._windows.cut(text), deid.in_note(text)

    def _facts(self, spec: ModalitySpec, given: Mapping[str, Any]) -> tuple[Decode, str | None]:
        from airflow_provider_llmbatch.engine.fusion.readers import facts

        array = facts.read_facts(given, spec["buckets"])
        return lambda: array, None


def _judged(verdict: Verdict, rules: Rules) -> str | None:
    """Return the code for which a record is quarantined, None when it can be used."""
    codes = [code for code, _ in verdict.bad.values()]
    if verdict.record.problem:
        return verdict.record.problem
    if identity := next((code for code in codes if code.startswith("deid.")), None):
        # A person who can be recognised in one modality can be in all that is said of the record.
        return identity
    if set(rules.require) - set(verdict.present):
        return next((verdict.bad[name][0] for name in rules.require if name in verdict.bad), "rec.required")
    if not verdict.present:
        return codes[0] if codes else "rec.empty"
    return "rec.too_few" if len(verdict.present) < rules.min_modalities else None
