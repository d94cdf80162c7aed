"""
Which slices make up one volume, decided by headers alone.

Nothing is bridged or invented: a series whose slices do not stand in one regular stack is refused, with a
code of its own for each way of not standing so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from airflow_provider_llmbatch.engine.fusion.errors import FusionInputError
from airflow_provider_llmbatch.engine.fusion.readers.dicom_head import Heads, SliceHead, read_heads

#: Distance by which a slice may miss its place: mm, and share of the distance between slices.
TOLERANCE_MM, TOLERANCE = 0.02, 0.01
#: Degrees by which the stack may lean.
TILT = 0.5
#: Differences of direction cosines that are noise of writing.
_SAME_DIRECTION, _SAME_SPACING = 1e-3, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesAudit:
    """A series that makes a volume."""

    #: along the normal, ascending
    slices: tuple[SliceHead, ...]
    #: 4 × 4: (slice, row, column) to mm in the patient's coordinates (LPS)
    affine: NDArray[np.float64]
    #: files left aside, by why
    aside: Mapping[str, int]
    #: how many slices other series had
    other_series: tuple[int, ...]
    #: first finding of the gate for identities
    identity: str | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Slices, rows, columns."""
        return len(self.slices), self.slices[0].rows, self.slices[0].columns


def audit_series(path: Path, series_uid: str | None = None) -> SeriesAudit:
    """
    Find the volume in a file or folder.

    :param series_uid: the series to take; otherwise the one of most slices, of these the thinnest.
    :raises FusionInputError: a code ``ct.*``.
    """
    heads = read_heads(path)
    if not heads.slices:
        raise FusionInputError(_why_nothing(heads.aside), "ct")
    by_series: dict[str, list[SliceHead]] = defaultdict(list)
    for each in heads.slices:
        by_series[each.series].append(each)
    chosen = _chosen(by_series, series_uid)
    _refuse_broken(heads)
    slices = _one_acquisition(by_series[chosen])
    ordered, affine = _stack(slices)
    others = tuple(sorted(len(found) for uid, found in by_series.items() if uid != chosen))
    return SeriesAudit(
        slices=ordered, affine=affine, aside=heads.aside, other_series=others, identity=heads.identity
    )


def _why_nothing(aside: Counter[str]) -> str:
    codes = sorted(reason for reason in aside if reason.startswith("ct."))
    if codes:
        return codes[0]
    for reason, code in {
        "inverted": "ct.photometric",
        "localizer": "ct.no_series",
        "not_ct": "ct.modality",
    }.items():
        if aside[reason]:
            return code
    return "ct.not_dicom"


def _refuse_broken(heads: Heads) -> None:
    """A slice that cannot be read may belong to the chosen series: without it there is no volume."""
    for reason in sorted(heads.aside):
        if reason.startswith("ct."):
            raise FusionInputError(reason, "ct", f"{heads.aside[reason]} files")


def _chosen(by_series: Mapping[str, Sequence[SliceHead]], wanted: str | None) -> str:
    if wanted is not None:
        if wanted not in by_series:
            raise FusionInputError("ct.unknown_series", "ct", f"{len(by_series)} others")
        return wanted

    def merit(uid: str) -> tuple[int, float]:
        slices = by_series[uid]
        return len(slices), -float(np.median([each.thickness for each in slices]))

    ranked = sorted(by_series, key=merit, reverse=True)
    if len(ranked) > 1 and merit(ranked[0]) == merit(ranked[1]):
        raise FusionInputError("ct.ambiguous_series", "ct", f"{merit(ranked[0])[0]} slices each")
    return ranked[0]


def _one_acquisition(slices: list[SliceHead]) -> list[SliceHead]:
    """Return the largest acquisition where several cover the same places, else all slices."""
    places = Counter(tuple(np.round(each.position, 2)) for each in slices)
    numbers = Counter(each.acquisition for each in slices)
    if max(places.values()) == 1 or len(numbers) == 1:
        return slices
    (first, most), (_, next_most) = numbers.most_common(2)
    if most == next_most:
        raise FusionInputError("ct.ambiguous_series", "ct", f"{len(numbers)} acquisitions")
    return [each for each in slices if each.acquisition == first]


def _stack(slices: list[SliceHead]) -> tuple[tuple[SliceHead, ...], NDArray[np.float64]]:
    """Order the slices along their normal, and return them with their affine."""
    first = slices[0]
    _refuse_mixed(slices)
    if len(slices) < 2:
        raise FusionInputError("ct.too_few_slices", "ct")
    along_row, along_column = (np.asarray(vector) for vector in first.orientation)
    normal = np.cross(along_row, along_column)
    if not np.isclose(np.linalg.norm(normal), 1.0, atol=1e-2):
        raise FusionInputError("ct.no_geometry", "ct")
    normal = normal / np.linalg.norm(normal)
    depth = {id(each): float(np.dot(each.position, normal)) for each in slices}
    ordered = sorted(slices, key=lambda each: depth[id(each)])
    depths = [depth[id(each)] for each in ordered]
    step = _regular_step(depths)
    start, end = (np.asarray(each.position) for each in (ordered[0], ordered[-1]))
    _refuse_tilt(end - start, normal)
    affine = np.eye(4)
    affine[:3, 0] = normal * step
    affine[:3, 1] = along_column * first.spacing[0]
    affine[:3, 2] = along_row * first.spacing[1]
    affine[:3, 3] = start
    return tuple(ordered), affine


def _refuse_mixed(slices: Iterable[SliceHead]) -> None:
    first, *rest = slices
    for each in rest:
        if (each.rows, each.columns) != (first.rows, first.columns):
            raise FusionInputError("ct.mixed_size", "ct")
        if not np.allclose(each.orientation, first.orientation, rtol=0, atol=_SAME_DIRECTION):
            raise FusionInputError("ct.mixed_orientation", "ct")
        if not np.allclose(each.spacing, first.spacing, rtol=_SAME_SPACING):
            raise FusionInputError("ct.mixed_spacing", "ct")


def _regular_step(depths: Sequence[float]) -> float:
    """
    Return the distance between slices in mm.

    :raises FusionInputError: ``ct.duplicate``, ``ct.gap`` or ``ct.irregular``.
    """
    steps = np.diff(depths)
    if (steps < TOLERANCE_MM).any():
        raise FusionInputError("ct.duplicate", "ct", f"at {depths[int(np.argmin(steps))]:.2f} mm")
    median = float(np.median(steps))
    allowed = max(TOLERANCE_MM, TOLERANCE * median)
    if (worst := float(np.abs(steps - median).max())) > allowed:
        place = int(np.argmax(np.abs(steps - median)))
        code = "ct.gap" if steps[place] > 1.5 * median else "ct.irregular"
        between = f"{steps[place]:.2f} mm between {depths[place]:.2f} and {depths[place + 1]:.2f} mm"
        raise FusionInputError(code, "ct", f"{between}, the others {median:.2f} mm, off by {worst:.2f} mm")
    return float((depths[-1] - depths[0]) / (len(depths) - 1))


def _refuse_tilt(way: NDArray[np.float64], normal: NDArray[np.float64]) -> None:
    cosine = float(np.dot(way, normal) / np.linalg.norm(way))
    if (degrees := float(np.degrees(np.arccos(min(1.0, cosine))))) > TILT:
        raise FusionInputError("ct.tilt", "ct", f"{degrees:.1f} degrees")
