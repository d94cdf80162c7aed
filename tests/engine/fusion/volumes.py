"""Two independent readers of CT series, and a third look at what they say."""

from __future__ import annotations

from pathlib import Path

import highdicom
import numpy as np
import pydicom
import SimpleITK


def by_highdicom(files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Return HU and affine (slice, row, column → LPS) as highdicom has them."""
    sets = [pydicom.dcmread(path) for path in files]
    if len(sets) == 1:
        volume = highdicom.Image.from_dataset(sets[0]).get_volume(dtype=np.float32)
    else:
        volume = highdicom.get_volume_from_series(sets, dtype=np.float32)
    return volume.array, volume.affine


def by_simpleitk(files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Return HU and affine as SimpleITK has them."""
    if len(files) == 1:
        image = SimpleITK.ReadImage(str(files[0]))
    else:
        reader = SimpleITK.ImageSeriesReader()
        reader.SetFileNames([str(path) for path in files])
        image = reader.Execute()
    direction = np.asarray(image.GetDirection()).reshape(3, 3)
    affine = np.eye(4)
    for axis in range(3):
        affine[:3, 2 - axis] = direction[:, axis] * image.GetSpacing()[axis]
    affine[:3, 3] = image.GetOrigin()
    return SimpleITK.GetArrayFromImage(image), affine


def same_way(array: np.ndarray, affine: np.ndarray, like: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mirror the slices when they run against those of another affine."""
    if np.dot(affine[:3, 0], like[:3, 0]) >= 0:
        return array, affine
    turned = affine.copy()
    turned[:3, 3] += affine[:3, 0] * (len(array) - 1)
    turned[:3, 0] *= -1
    return array[::-1], turned
