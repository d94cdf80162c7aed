"""
A cohort of nobody: CT series, slides and notes with planted findings, for demos, tests and rehearsals.

Each record has three findings, which are there or not by chance: a dense lesion in its CT, a purple stain on
its slide, a phrase in its note. Its label says whether two of the three are there. So no modality alone can
tell more than three labels of four, and all together can tell every one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import tifffile
from numpy.typing import NDArray
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import UID, CTImageStorage, ExplicitVRLittleEndian

#: What a note says with and without its finding.
WITH = ("A spiculated mass with pleural retraction is seen.", "There is a spiculated, enhancing mass.")
WITHOUT = ("No focal lesion is seen.", "There is no suspicious mass.")
_FILLERS = (
    "The heart is of normal size.",
    "No pleural effusion.",
    "Degenerative changes of the spine.",
    "The study is compared with an earlier one.",
    "Technique: axial slices, soft tissue and lung windows.",
)
#: Prefix of identifiers that are made of numbers alone (ISO/IEC 9834-8 under 2.25).
_UID = "2.25."


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large the pictures are."""

    slices: int = 16
    side: int = 48
    spacing_mm: tuple[float, float, float] = (8.0, 6.0, 6.0)
    slide_px: int = 512
    mpp: float = 0.5


def make_cohort(
    folder: Path, count: int, *, seed: int = 0, missing: float = 0.0, sizes: Sizes | None = None
) -> Path:
    """
    Write a cohort, and return its ``records.jsonl``.

    :param missing: share of modalities that records lack; each keeps at least one.
    """
    chance, sizes = np.random.default_rng(seed), sizes or Sizes()
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        findings = chance.integers(0, 2, 3).astype(bool)
        kept = chance.random(3) >= missing
        kept[chance.integers(0, 3)] |= not kept.any()
        name = f"case-{seed:03d}-{number:04d}"
        rows.append(_record(folder, name, findings, kept, chance, sizes))
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def public_cases(folder: Path) -> list[dict[str, Any]]:
    """
    Return rows of real files that packages carry, as good and as broken as scanners leave them.

    A series among scouts, one with a hole of 202 mm, a radiograph in the place of a CT, stained tissue on
    glass, and enhanced CT whose header names a (made-up) person.
    """
    bundled = Path(pydicom.__file__).parent / "data" / "test_files" / "dicomdirtests"
    rows: list[dict[str, Any]] = [
        {"id": "real-among-scouts", "ct": str(bundled / "98892001"), "notes": WITHOUT[0]},
        {"id": "real-gap", "ct": str(bundled / "77654033" / "CT2"), "notes": WITHOUT[1]},
        {"id": "real-radiograph", "ct": str(bundled / "77654033" / "CR1"), "notes": WITH[0]},
    ]
    if find_spec("data_store") is not None:
        enhanced = str(get_testdata_file("eCT_Supplemental.dcm"))
        rows.append({"id": "real-enhanced", "ct": enhanced, "notes": WITHOUT[0]})
    if find_spec("skimage") is not None:
        from skimage import data

        glass = np.full((1024, 1024, 3), 245, np.uint8)
        glass[256:768, 256:768] = data.immunohistochemistry()
        folder.mkdir(parents=True, exist_ok=True)
        write_slide(folder / "stained.tiff", glass, 0.5)
        rows.append({"id": "real-stained", "wsi": str(folder / "stained.tiff"), "notes": WITH[1]})
    return rows


def _record(
    folder: Path,
    name: str,
    findings: NDArray[np.bool_],
    kept: NDArray[np.bool_],
    chance: np.random.Generator,
    sizes: Sizes,
) -> dict[str, Any]:
    row: dict[str, Any] = {"id": name, "label": int(findings.sum() >= 2)}
    if kept[0]:
        row["ct"] = f"{name}/ct"
        hu = body(chance, sizes, lesion=bool(findings[0]))
        write_series(folder / name / "ct", hu, sizes.spacing_mm, uid=f"{_UID}{number_of(name)}")
    if kept[1]:
        row["wsi"] = f"{name}/slide.tiff"
        (folder / name).mkdir(exist_ok=True)
        write_slide(folder / name / "slide.tiff", tissue(chance, sizes, purple=bool(findings[1])), sizes.mpp)
    if kept[2]:
        row["notes"] = note(chance, finding=bool(findings[2]))
    return row


def number_of(name: str) -> int:
    """Return a number for a name, the same in every process."""
    return int.from_bytes(name.encode()[-12:], "big")


def body(chance: np.random.Generator, sizes: Sizes, *, lesion: bool) -> NDArray[np.int16]:
    """Return a volume in HU: an ellipse of soft tissue in air, and in it perhaps a dense ball."""
    shape = (sizes.slices, sizes.side, sizes.side)
    z, y, x = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij")
    inside = (x / 0.8) ** 2 + (y / 0.65) ** 2 < 1
    hu = np.where(inside, 40.0, -1000.0)
    hu[((x / 0.35) ** 2 + ((y + 0.1) / 0.4) ** 2 < 1) & inside] = -700.0
    if lesion:
        middle = chance.uniform(-0.3, 0.3, 3)
        ball = (z - middle[0]) ** 2 + (y - middle[1]) ** 2 + (x - middle[2]) ** 2 < 0.35**2
        hu[ball] = chance.uniform(500, 800)
    return np.asarray(np.rint(hu + chance.normal(0, 15, shape)), np.int16)


def tissue(chance: np.random.Generator, sizes: Sizes, *, purple: bool) -> NDArray[np.uint8]:
    """Return a slide: a stained disc on white."""
    side = sizes.slide_px
    y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    picture = np.full((side, side, 3), 245.0)
    colour = (120.0, 70.0, 160.0) if purple else (225.0, 140.0, 180.0)
    grain = chance.normal(0, 18, (side, side, 1))
    picture = np.where((x**2 + y**2 < 0.85)[..., None], np.asarray(colour) + grain, picture)
    return np.asarray(picture.clip(0, 255), np.uint8)


def note(chance: np.random.Generator, *, finding: bool) -> str:
    """Return a note: some sentences, and one that counts."""
    words = list(chance.permutation(_FILLERS)[: int(chance.integers(2, 5))])
    words.insert(int(chance.integers(0, len(words) + 1)), str(chance.choice(WITH if finding else WITHOUT)))
    return " ".join(str(word) for word in words)


def write_series(
    folder: Path,
    hu: NDArray[np.int16],
    spacing_mm: Sequence[float],
    *,
    uid: str = f"{_UID}1",
    origin: Sequence[float] = (-100.0, -120.0, -50.0),
    orientation: Sequence[float] = (1, 0, 0, 0, 1, 0),
    tags: Mapping[str, Any] | None = None,
) -> list[Path]:
    """
    Write a volume as a CT series, one file a slice, and return the files.

    :param spacing_mm: of slices, rows, columns.
    :param origin: place of the first voxel in mm.
    :param tags: further attributes of each file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    normal = np.cross(orientation[:3], orientation[3:])
    paths = []
    for number, values in enumerate(hu):
        place = np.asarray(origin, float) + normal * spacing_mm[0] * number
        head = _slice(values, uid, number)
        head.ImagePositionPatient = [f"{each:.4f}" for each in place]
        head.ImageOrientationPatient = list(orientation)
        head.PixelSpacing = [spacing_mm[1], spacing_mm[2]]
        head.SliceThickness = spacing_mm[0]
        for name, value in (tags or {}).items():
            setattr(head, name, value)
        paths.append(folder / f"{number:04d}.dcm")
        head.save_as(paths[-1], enforce_file_format=True)
    return paths


def _slice(values: NDArray[np.int16], uid: str, number: int) -> Dataset:
    head = Dataset()
    head.file_meta = FileMetaDataset()
    head.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    head.file_meta.MediaStorageSOPClassUID = head.SOPClassUID = CTImageStorage
    head.file_meta.MediaStorageSOPInstanceUID = head.SOPInstanceUID = UID(f"{uid}.{number + 1}")
    head.StudyInstanceUID, head.SeriesInstanceUID = f"{uid}.0", uid
    head.FrameOfReferenceUID = f"{uid}.9"
    head.Modality, head.ImageType = "CT", ["ORIGINAL", "PRIMARY", "AXIAL"]
    head.PatientName, head.PatientID, head.PatientIdentityRemoved = "", "", "YES"
    head.InstanceNumber = number + 1
    head.Rows, head.Columns = values.shape
    head.SamplesPerPixel, head.PhotometricInterpretation = 1, "MONOCHROME2"
    head.BitsAllocated = head.BitsStored = 16
    head.HighBit, head.PixelRepresentation = 15, 0
    head.RescaleSlope, head.RescaleIntercept = 1, -1024
    head.PixelData = (values.astype(np.int32) + 1024).clip(0, 65535).astype("<u2").tobytes()
    return head


def write_slide(path: Path, picture: NDArray[np.uint8], mpp: float, *, levels: int = 2) -> None:
    """
    Write a picture as a tiled slide, each level half as large as the one before.

    :param picture: (rows, columns, 3).
    :param mpp: micrometres of a pixel.
    """
    with tifffile.TiffWriter(path) as file:
        for level in range(levels):
            step = 2**level
            height, width = (side // step * step for side in picture.shape[:2])
            small = picture[:height, :width].reshape(height // step, step, width // step, step, 3)
            per_cm = 1e4 / (mpp * step)
            file.write(
                small.mean(axis=(1, 3)).round().astype(np.uint8),
                tile=(128, 128),
                photometric="rgb",
                resolution=(per_cm, per_cm),
                resolutionunit="CENTIMETER",
                subfiletype=1 if level else 0,
                metadata=None,
            )
