"""The source of a fusion: a row a record, which says where each modality is. Streams, in flat memory."""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.fusion.errors import missing_library
from airflow_provider_llmbatch.engine.fusion.schema import ModalitySpec, Schema
from airflow_provider_llmbatch.engine.identity import UniqueIds, canonical_json
from airflow_provider_llmbatch.errors import InputError

_ABOUT = ("id", "label", "metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row: what there is of a patient, a case, a study."""

    index: int
    id: str
    #: by modality: ``{"path": …}`` (a file or folder), ``{"text": …}`` or ``{"value": …}`` (in the row)
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    label: Any = None
    #: a code of :data:`.errors.CODES` when the row is no record
    problem: str | None = None


def read_records(
    source: str, schema: Schema, facts: Mapping[str, Any] | None = None, base: str | None = None
) -> Iterator[Record]:
    """
    Yield the records of a JSONL, CSV or Parquet file.

    A row has ``id``, for each modality a field of its name (or ``<name>_path`` where the field is text), and
    optionally ``label`` and ``metadata``.

    :param facts: by record id, for the schema's modality of kind ``facts``; rows of their own go first.
    :param base: what relative paths are seen from; the file's folder when None.
    :raises InputError: when the file cannot be read, or an id comes twice.
    """
    folder = Path(base) if base else Path(source).resolve().parent
    fact_names = [spec.name for spec in schema if spec.kind == "facts"]
    with UniqueIds(os.path.basename(source)) as ids:
        for index, row in enumerate(_rows(source)):
            record = _record(index, row, schema, folder)
            ids.add(record.id, index)
            extra = {
                name: {"value": (facts or {})[record.id]}
                for name in fact_names
                if name not in record.inputs and record.id in (facts or {})
            }
            yield _with(record, extra) if extra else record


def stamp(record: Record) -> bytes:
    """Return 32 bytes that change when the record's row, or size or time of any of its files, changes."""
    digest = hashlib.sha256(canonical_json([record.id, record.problem, record.label]).encode())
    for name, given in sorted(record.inputs.items()):
        digest.update(canonical_json([name, given]).encode())
        if "path" in given:
            for path in files_of(Path(given["path"])):
                about = path.stat()
                digest.update(f"{path.name}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    return digest.digest()


def files_of(path: Path) -> list[Path]:
    """Return a file, or all files below a folder, sorted; none when nothing is there."""
    if path.is_dir():
        return sorted(each for each in path.rglob("*") if each.is_file())
    return [path] if path.is_file() else []


def _with(record: Record, extra: Mapping[str, Any]) -> Record:
    inputs = {**record.inputs, **extra}
    return Record(index=record.index, id=record.id, inputs=inputs, label=record.label, problem=record.problem)


def _record(index: int, row: Any, schema: Schema, folder: Path) -> Record:
    identity = row.get("id") if isinstance(row, Mapping) else None
    if not isinstance(row, Mapping) or (identity is not None and not isinstance(identity, str | int)):
        return Record(index=index, id=f"#{index}", problem="rec.bad_row")
    record_id = f"#{index}" if identity in (None, "") else str(identity)
    known = {*_ABOUT, *schema.names, *(f"{name}_path" for name in schema.names)}
    inputs = {spec.name: given for spec in schema if (given := _input(row, spec, folder)) is not None}
    problem = None
    if any(value not in (None, "") for key, value in row.items() if key not in known):
        problem = "rec.unknown_field"
    elif any("bad" in given for given in inputs.values()):
        problem = "rec.bad_row"
    return Record(
        index=index,
        id=record_id,
        inputs={} if problem else inputs,
        label=row.get("label"),
        problem=problem,
    )


def _input(row: Mapping[str, Any], spec: ModalitySpec, folder: Path) -> dict[str, Any] | None:
    """Return what a row says of a modality, None when it says nothing."""
    value, path = row.get(spec.name), row.get(f"{spec.name}_path")
    if value is None or value == "":
        value = None if path in (None, "") else {"path": path}
    if value is None:
        return None
    if spec.kind == "facts" and not (isinstance(value, Mapping) and set(value) == {"path"}):
        return {"value": value}
    if isinstance(value, str):
        value = {"text" if spec.kind == "note" else "path": value}
    if not isinstance(value, Mapping) or not set(value) <= {"path", "text", "series_uid"}:
        return {"bad": True}
    if "path" in value:
        value = {**value, "path": str(folder / str(value["path"]))}
    return dict(value)


def _rows(source: str) -> Iterator[Any]:
    ending = source.rpartition(".")[2].lower()
    readers = {"jsonl": _jsonl, "ndjson": _jsonl, "csv": _csv, "parquet": _parquet}
    if ending not in readers:
        raise InputError(f"The source ends in .{ending}; give a .jsonl, .csv or .parquet file.")
    try:
        yield from readers[ending](source)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InputError(f"The source cannot be read: {reason}.") from error


def _jsonl(source: str) -> Iterator[Any]:
    with open(source, "rb") as file:
        for line in file:
            if line.strip():
                yield _parsed(line)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _csv(source: str) -> Iterator[Any]:
    with open(source, encoding="utf-8-sig", newline="") as file:
        yield from csv.DictReader(file, restkey="#rest")


def _parquet(source: str) -> Iterator[Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise missing_library("pyarrow", "parquet") from error
    try:
        with parquet.ParquetFile(source) as table:
            for batch in table.iter_batches(batch_size=256):
                yield from batch.to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise InputError("The source is no Parquet file; write it again.") from error
