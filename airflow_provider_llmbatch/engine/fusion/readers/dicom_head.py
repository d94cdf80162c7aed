"""Headers of DICOM files: which slices there are, read without their pixels."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.fusion.errors import FusionInputError, missing_library
from airflow_provider_llmbatch.engine.fusion.readers import deid
from airflow_provider_llmbatch.engine.fusion.records import files_of

try:
    import numpy as np
    import pydicom
    from pydicom.errors import InvalidDicomError
except ImportError as error:
    raise missing_library("pydicom", "fusion-dicom") from error

# Its warnings quote values of the file.
pydicom.config.settings.reading_validation_mode = pydicom.config.IGNORE
warnings.filterwarnings("ignore", module=r"pydicom\b")

Vector = tuple[float, float, float]

_CT = "1.2.840.10008.5.1.4.1.1.2"
_TAGS = [
    *("SOPClassUID", "Modality", "ImageType", "SeriesInstanceUID", "AcquisitionNumber"),
    *("ImageOrientationPatient", "ImagePositionPatient", "PixelSpacing", "SliceThickness"),
    *("Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation"),
    *("RescaleSlope", "RescaleIntercept", "PixelPaddingValue", "PixelRepresentation", "BitsStored"),
    *("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"),
    *("BurnedInAnnotation", "PatientIdentityRemoved", *deid.PERSON),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceHead:
    """One slice: a file, or a frame of one."""

    path: Path
    frame: int
    series: str
    acquisition: int | None
    rows: int
    columns: int
    #: of the first voxel, in mm, in the patient's coordinates (LPS)
    position: Vector
    #: along a row, and along a column
    orientation: tuple[Vector, Vector]
    #: mm between rows, and between columns
    spacing: tuple[float, float]
    thickness: float
    slope: float
    intercept: float
    padding: int | None
    syntax: str


@dataclass(slots=True)
class Heads:
    """What the headers below a path say."""

    slices: list[SliceHead] = field(default_factory=list)
    #: how many files were left aside, by why: ``localizer``, ``not_ct``, ``not_dicom``, ``inverted``, a code
    aside: Counter[str] = field(default_factory=Counter)
    #: first finding of the gate for identities
    identity: str | None = None


def read_heads(path: Path) -> Heads:
    """
    Read the headers of a file, or of all files below a folder.

    :raises FusionInputError: ``ct.not_found``.
    """
    files = files_of(path)
    if not files:
        raise FusionInputError("ct.not_found", "ct")
    found = Heads()
    for file in files:
        head = _header(file, found.aside)
        if head is not None:
            found.identity = found.identity or deid.in_header(head)
            _take(head, file, found)
    return found


def _take(head: Any, file: Path, found: Heads) -> None:
    """Add a file's slices, or say why it was left aside."""
    if reason := _left_aside(head):
        found.aside[reason] += 1
        return
    try:
        found.slices += _slices(head, file)
    except FusionInputError as error:
        found.aside[error.code] += 1
    except (TypeError, ValueError, AttributeError, IndexError):
        found.aside["ct.no_geometry"] += 1


def _header(file: Path, aside: Counter[str]) -> Any | None:
    with open(file, "rb") as opened:
        start = opened.read(132)
    try:
        # Without its preamble a file is believed when it begins with a plausible group.
        force = start[128:] != b"DICM" and start[1:2] == b"\0" and start[:1] in (b"\x02", b"\x08")
        if start[128:] != b"DICM" and not force:
            aside["not_dicom"] += 1
            return None
        return pydicom.dcmread(file, stop_before_pixels=True, specific_tags=list(_TAGS), force=force)
    except (InvalidDicomError, OSError, ValueError, TypeError, AttributeError, KeyError, NotImplementedError):
        aside["ct.unreadable"] += 1
        return None


def _left_aside(head: Any) -> str | None:
    """Return why a file is no slice of a CT, None when it is one."""
    kind = [str(word).upper() for word in head.get("ImageType") or ()]
    if not str(head.get("SOPClassUID") or "").startswith(_CT):
        inverted = head.get("PhotometricInterpretation") == "MONOCHROME1"
        return "inverted" if inverted else "not_ct"
    if "LOCALIZER" in kind:
        return "localizer"
    plain = head.get("PhotometricInterpretation") == "MONOCHROME2" and head.get("SamplesPerPixel", 1) == 1
    return None if plain or head.get("Rows") is None else "ct.photometric"


def _slices(head: Any, file: Path) -> Iterator[SliceHead]:
    """Yield the slices of a file; those of enhanced CT say of each frame, or of all, what others say once."""
    shared = _first(head.get("SharedFunctionalGroupsSequence"))
    frames = head.get("PerFrameFunctionalGroupsSequence")
    if frames is None and int(head.get("NumberOfFrames") or 1) != 1:
        raise FusionInputError("ct.no_geometry", "ct")
    for number, group in enumerate(frames or [None]):
        yield _slice(head, file, number, [each for each in (group, shared) if each is not None])


def _slice(head: Any, file: Path, number: int, groups: list[Any]) -> SliceHead:
    def value(name: str, sequence: str) -> Any:
        for group in groups:
            inner = _first(group.get(sequence))
            if inner is not None and inner.get(name) is not None:
                return inner.get(name)
        return None if groups else head.get(name)

    orientation = value("ImageOrientationPatient", "PlaneOrientationSequence")
    position = value("ImagePositionPatient", "PlanePositionSequence")
    spacing = value("PixelSpacing", "PixelMeasuresSequence")
    slope = value("RescaleSlope", "PixelValueTransformationSequence")
    intercept = value("RescaleIntercept", "PixelValueTransformationSequence")
    if orientation is None or position is None or spacing is None:
        raise FusionInputError("ct.no_geometry", "ct")
    if slope is None or intercept is None:
        raise FusionInputError("ct.no_rescale", "ct")
    cosines = [float(each) for each in orientation]
    acquisition, padding = head.get("AcquisitionNumber"), head.get("PixelPaddingValue")
    return SliceHead(
        path=file,
        frame=number,
        series=str(head.get("SeriesInstanceUID") or ""),
        acquisition=None if acquisition in (None, "") else int(acquisition),
        rows=int(head.Rows),
        columns=int(head.Columns),
        position=_vector(position),
        orientation=(_vector(cosines[:3]), _vector(cosines[3:])),
        spacing=(_positive(spacing[0]), _positive(spacing[1])),
        thickness=float(value("SliceThickness", "PixelMeasuresSequence") or 0.0),
        slope=float(slope),
        intercept=float(intercept),
        padding=None if padding is None else _stored(padding, head),
        syntax=str(getattr(getattr(head, "file_meta", None), "TransferSyntaxUID", "")),
    )


def _first(sequence: Any) -> Any | None:
    return sequence[0] if sequence else None


def _vector(values: Any) -> Vector:
    x, y, z = (float(value) for value in values)
    if not np.isfinite([x, y, z]).all():
        raise ValueError
    return x, y, z


def _positive(value: Any) -> float:
    if not 0.0 < (number := float(value)) < float("inf"):
        raise ValueError
    return number


def _stored(padding: Any, head: Any) -> int:
    """Return the padding value as pixels hold it; writers confuse signed and unsigned."""
    value, bits = int(padding), 16
    if head.get("PixelRepresentation") == 1 and value >= 1 << (bits - 1):
        return value - (1 << bits)
    return value + (1 << bits) if head.get("PixelRepresentation") == 0 and value < 0 else value
