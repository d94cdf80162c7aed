"""From a checked series to a volume in Hounsfield units, and onto the grid of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.utils import pixel_array

from airflow_provider_llmbatch.engine.fusion.errors import FusionInputError
from airflow_provider_llmbatch.engine.fusion.readers.dicom_audit import SeriesAudit

#: Hounsfield units of air: what is outside of the picture.
AIR = -1024
#: Part of each cache key; rises whenever the same file would be read into other numbers.
VERSION = 1


@dataclass(frozen=True, slots=True)
class Volume:
    """Hounsfield units by slice, row and column, and where they are (see :attr:`.SeriesAudit.affine`)."""

    hu: NDArray[np.int16]
    affine: NDArray[np.float64]


def check_decoders(audit: SeriesAudit) -> None:
    """
    Refuse a compression before anything is decoded.

    :raises FusionInputError: ``ct.no_decoder`` with the transfer syntax.
    """
    for syntax in sorted({each.syntax for each in audit.slices if each.syntax}):
        try:
            available = get_decoder(syntax).is_available
        except NotImplementedError:
            available = False
        if not available:
            raise FusionInputError("ct.no_decoder", "ct", f"{syntax}, extra fusion-dicom-gdcm")


def load_series(audit: SeriesAudit) -> Volume:
    """
    Decode a series.

    Slope and intercept are those of each slice; padding, read before them, becomes air.

    :raises FusionInputError: ``ct.no_decoder``, ``ct.truncated``.
    """
    check_decoders(audit)
    hu = np.empty(audit.shape, np.int16)
    for number, each in enumerate(audit.slices):
        stored = stored_values(each.path, each.frame)
        if stored.shape != audit.shape[1:]:
            raise FusionInputError("ct.truncated", "ct", f"slice {number}")
        values = np.rint(stored * each.slope + each.intercept)
        if each.padding is not None:
            values[stored == each.padding] = AIR
        hu[number] = np.clip(values, -32768, 32767)
    return Volume(hu, audit.affine)


def stored_values(path: Path, frame: int = 0) -> NDArray[np.float64]:
    """
    Return the stored values of a frame.

    :raises FusionInputError: ``ct.truncated``.
    """
    try:
        return np.asarray(pixel_array(path, index=frame, raw=True, force=True), np.float64)
    except Exception as error:  # decoders raise what they like, and what they say quotes the file
        raise FusionInputError("ct.truncated", "ct", type(error).__name__) from error


def canonical(volume: Volume) -> Volume:
    """Turn and mirror a volume so that its axes come closest to +z, +y, +x of the patient (LPS)."""
    directions = volume.affine[:3, :3] / np.linalg.norm(volume.affine[:3, :3], axis=0)
    order = _closest(np.abs(directions))
    hu, affine = np.transpose(volume.hu, order), volume.affine.copy()
    affine[:, :3] = volume.affine[:, order]
    for axis, world in enumerate((2, 1, 0)):
        if affine[world, axis] < 0:
            affine[:3, 3] += affine[:3, axis] * (hu.shape[axis] - 1)
            affine[:3, axis] *= -1
            hu = np.flip(hu, axis)
    return Volume(np.ascontiguousarray(hu), affine)


def _closest(strength: NDArray[np.float64]) -> list[int]:
    """Return which axis of the volume lies along z, y and x; each one once."""
    left, order = [0, 1, 2], []
    for world in (2, 1, 0):
        best = max(left, key=lambda axis: strength[world, axis])
        left.remove(best)
        order.append(best)
    return order


def to_grid(volume: Volume, shape: Sequence[int], spacing_mm: Sequence[float]) -> NDArray[np.int16]:
    """
    Sample a volume on a grid around its middle: so many mm in each model's voxel, air outside.

    Along each axis whole voxels are averaged down first, then interpolated linearly.

    :param shape: slices, rows, columns.
    :param spacing_mm: of slices, rows, columns.
    """
    placed = canonical(volume)
    values = placed.hu.astype(np.float32)
    steps = np.linalg.norm(placed.affine[:3, :3], axis=0)
    for axis in range(3):
        values = _along(values, axis, shape[axis], spacing_mm[axis], float(steps[axis]))
    return np.rint(values).astype(np.int16)


def _along(
    values: NDArray[np.float32], axis: int, size: int, wanted: float, step: float
) -> NDArray[np.float32]:
    moved = np.moveaxis(values, axis, 0)
    if (factor := min(int(wanted / step), len(moved))) > 1:
        whole = len(moved) // factor * factor
        first = (len(moved) - whole) // 2
        parts = moved[first : first + whole].reshape(whole // factor, factor, *moved.shape[1:])
        moved, step = parts.mean(axis=1, dtype=np.float32), step * factor
    places = (len(moved) - 1) / 2 + (np.arange(size) - (size - 1) / 2) * (wanted / step)
    low = np.floor(places).astype(int)
    share = (places - low).astype(np.float32).reshape(-1, *[1] * (moved.ndim - 1))
    padded = np.concatenate([moved, np.full((1, *moved.shape[1:]), AIR, np.float32)])

    def at(index: NDArray[np.int_]) -> NDArray[np.float32]:
        inside = (index >= 0) & (index < len(moved))
        return padded[np.where(inside, index, len(moved))]

    mixed = at(low) * (1 - share) + at(low + 1) * share
    return np.moveaxis(mixed.astype(np.float32), 0, axis)
