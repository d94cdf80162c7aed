"""
Slides: patches of tissue at one field of view, whatever the scanner and its levels.

The level is chosen by micrometres per pixel, never by its number. Places are pixels of level 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airflow_provider_llmbatch.engine.fusion.errors import FusionInputError, missing_library

try:
    import openslide
    from PIL import Image
except ImportError as error:
    raise missing_library("openslide-python", "fusion-wsi") from error

#: Part of each cache key; rises whenever the same file would be read into other numbers.
VERSION = 1
#: Saturation above which a pixel is stained: an absolute value, for Otsu finds "tissue" on a blank slide too.
SATURATION = 0.05
#: Brightness below which it is ink, a fold or a fault of the scan.
BLACK = 0.08
#: Share of a patch that must be stained.
TISSUE = 0.25
#: Side in pixels of the picture that tissue is looked for in.
_THUMBNAIL = 2048
#: Relative difference up to which a level has the wanted resolution; scanners write 4.00008.
_SAME = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Where the patches of a slide are."""

    level: int
    #: side of a patch in pixels of the level
    level_px: int
    #: side of a patch in pixels of level 0
    side: float
    #: left and top in pixels of level 0
    places: tuple[tuple[int, int], ...]
    #: patches with tissue, of which ``places`` may be a sample
    tissue: int


@contextmanager
def open_slide(path: Path) -> Iterator[Any]:
    """
    Open a slide.

    :raises FusionInputError: ``wsi.not_found``, ``wsi.unreadable``.
    """
    if not path.is_file():
        raise FusionInputError("wsi.not_found", "wsi")
    try:
        slide = openslide.OpenSlide(str(path))
    except (openslide.OpenSlideError, OSError) as error:
        raise FusionInputError("wsi.unreadable", "wsi", type(error).__name__) from error
    try:
        yield slide
    except openslide.OpenSlideError as error:
        raise FusionInputError("wsi.unreadable", "wsi", type(error).__name__) from error
    finally:
        slide.close()


def microns(slide: Any) -> float:
    """
    Return micrometres per pixel of level 0.

    :raises FusionInputError: ``wsi.no_mpp`` when the slide does not say, or says it has oblong pixels.
    """
    try:
        x = float(slide.properties[openslide.PROPERTY_NAME_MPP_X])
        y = float(slide.properties[openslide.PROPERTY_NAME_MPP_Y])
    except (KeyError, ValueError) as error:
        raise FusionInputError("wsi.no_mpp", "wsi") from error
    if not 0.01 < x < 100 or abs(x - y) > _SAME * x:
        raise FusionInputError("wsi.no_mpp", "wsi", f"{x:g} and {y:g}")
    return x


def patch_grid(slide: Any, *, target_mpp: float, patch_px: int, max_patches: int, seed: int) -> Grid:
    """
    Find the patches that hold tissue; of more than ``max_patches`` a seeded sample.

    :param target_mpp: micrometres per pixel of a patch.
    :param patch_px: pixels of its side.
    :raises FusionInputError: ``wsi.no_mpp``, ``wsi.too_coarse``, ``wsi.no_tissue``.
    """
    own = microns(slide)
    if own > target_mpp * (1 + _SAME):
        raise FusionInputError("wsi.too_coarse", "wsi", f"{own:g} against {target_mpp:g} mpp")
    side = patch_px * target_mpp / own
    level = _level(slide, target_mpp / own)
    found = _with_tissue(slide, side)
    if not found:
        raise FusionInputError("wsi.no_tissue", "wsi")
    kept = np.sort(np.random.default_rng(seed).permutation(len(found))[:max_patches])
    return Grid(
        level=level,
        level_px=round(side / float(slide.level_downsamples[level])),
        side=side,
        places=tuple(found[int(each)] for each in kept),
        tissue=len(found),
    )


def read_patches(
    slide: Any, grid: Grid, patch_px: int, out: NDArray[np.uint8] | None = None
) -> NDArray[np.uint8]:
    """
    Read the patches of a grid: RGB on white, (n, 3, side, side).

    :param out: where they go; a new array when None.
    :raises FusionInputError: ``wsi.unreadable``.
    """
    patches = np.empty((len(grid.places), 3, patch_px, patch_px), np.uint8) if out is None else out
    for number, place in enumerate(grid.places):
        picture = _on_white(slide.read_region(place, grid.level, (grid.level_px, grid.level_px)))
        if grid.level_px != patch_px:
            picture = picture.resize((patch_px, patch_px), Image.Resampling.BOX)
        patches[number] = np.asarray(picture).transpose(2, 0, 1)
    return patches


def _level(slide: Any, wanted: float) -> int:
    """Return the smallest level that is still as fine as wanted."""
    fine = [n for n, down in enumerate(slide.level_downsamples) if float(down) <= wanted * (1 + _SAME)]
    return max(fine, key=lambda n: float(slide.level_downsamples[n]))


def _with_tissue(slide: Any, side: float) -> list[tuple[int, int]]:
    """Return left and top of each whole patch that holds enough tissue; the grid ends inside the slide."""
    width, height = slide.dimensions
    mask = tissue_mask(_on_white(slide.get_thumbnail((_THUMBNAIL, _THUMBNAIL))))
    scale_y, scale_x = mask.shape[0] / height, mask.shape[1] / width
    sums = np.pad(mask.astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    found = []
    for row in range(int(height / side + 1e-6)):
        for column in range(int(width / side + 1e-6)):
            top, bottom = (round(edge * side * scale_y) for edge in (row, row + 1))
            left, right = (round(edge * side * scale_x) for edge in (column, column + 1))
            area = max(1, (bottom - top) * (right - left))
            stained = sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
            if stained / area >= TISSUE:
                found.append((round(column * side), round(row * side)))
    return found


def tissue_mask(picture: Image.Image) -> NDArray[np.bool_]:
    """Return which pixels are stained: coloured, and not black."""
    values = np.asarray(picture, np.float32) / 255
    brightest, darkest = values.max(axis=2), values.min(axis=2)
    saturation = (brightest - darkest) / np.maximum(brightest, 1e-6)
    mask: NDArray[np.bool_] = (saturation > SATURATION) & (brightest > BLACK)
    return mask


def _on_white(picture: Image.Image) -> Image.Image:
    """Lay a picture on white: outside of a scan it is transparent."""
    if picture.mode != "RGBA":
        return picture.convert("RGB")
    white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, picture).convert("RGB")
