"""Slides: one field of view whatever the scanner, and patches from tissue only."""

from __future__ import annotations

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import numpy as np
import tifffile
from PIL import Image

from airflow_provider_llmbatch.engine.fusion.errors import FusionInputError
from airflow_provider_llmbatch.engine.fusion.readers.wsi import (
    open_slide,
    patch_grid,
    read_patches,
    tissue_mask,
)
from airflow_provider_llmbatch.simulator.cohort import write_slide

CELL = 64


def chessboard(cells: int, cell: int = CELL) -> np.ndarray:
    """Return a picture of stained cells, each with a colour of its own."""
    numbers = np.arange(cells * cells).reshape(cells, cells)
    colours = np.stack([numbers * 40 % 160 + 40, numbers * 70 % 100, 200 - numbers * 25 % 90], axis=-1)
    return np.kron(colours, np.ones((cell, cell, 1))).astype(np.uint8)


def patches_of(path, *, mpp: float = 0.5, patch_px: int = CELL, most: int = 999, seed: int = 0):
    with open_slide(path) as slide:
        grid = patch_grid(slide, target_mpp=mpp, patch_px=patch_px, max_patches=most, seed=seed)
        return grid, read_patches(slide, grid, patch_px)


def test_scans_of_20x_and_40x_give_the_same_fields_of_view(tmp_path):
    fine = chessboard(8)
    coarse = np.asarray(Image.fromarray(fine).resize((256, 256), Image.Resampling.BOX))
    write_slide(tmp_path / "40x.tiff", fine, 0.25)
    write_slide(tmp_path / "20x.tiff", coarse, 0.5)
    fine_grid, fine_patches = patches_of(tmp_path / "40x.tiff", patch_px=32)
    coarse_grid, coarse_patches = patches_of(tmp_path / "20x.tiff", patch_px=32)
    assert (fine_grid.side * 0.25, coarse_grid.side * 0.5) == (16, 16)
    assert (fine_grid.level, coarse_grid.level) == (1, 0)
    halves = [(x // 2, y // 2) for x, y in fine_grid.places]
    assert np.abs(np.asarray(halves) - np.asarray(coarse_grid.places)).max() <= 1
    assert np.abs(fine_patches.astype(int) - coarse_patches.astype(int)).max() <= 2


@pytest.mark.parametrize(("mpp", "level"), [(0.25, 0), (0.5, 1), (1.0, 2), (0.75, 1)])
def test_every_level_shows_the_right_cell_at_its_place(tmp_path, mpp, level):
    board = chessboard(8)
    write_slide(tmp_path / "slide.tiff", board, 0.25, levels=3)
    side = int(CELL * 0.25 / mpp)
    grid, patches = patches_of(tmp_path / "slide.tiff", mpp=mpp, patch_px=side)
    assert grid.level == level
    assert len(grid.places) == int(512 * 0.25 / mpp / side) ** 2
    for (x, y), patch in zip(grid.places, patches, strict=True):
        middle = patch[:, side // 2, side // 2]
        expected = board[y + CELL // 2, x + CELL // 2]
        assert np.abs(middle.astype(int) - expected.astype(int)).max() <= 1


def test_no_patch_comes_from_glass_from_black_or_from_beyond_the_edge(tmp_path):
    picture = np.full((500, 500, 3), 246, np.uint8)
    picture[:128, :128] = (200, 100, 160)
    picture[256:384, 256:384] = 3
    picture[480:, 480:] = (200, 100, 160)
    write_slide(tmp_path / "slide.tiff", picture, 0.5)
    grid, patches = patches_of(tmp_path / "slide.tiff")
    assert grid.places == ((0, 0), (64, 0), (0, 64), (64, 64))
    assert patches.mean(axis=(0, 2, 3)) == pytest.approx([200, 100, 160], abs=1)


def test_what_is_transparent_is_white_and_no_tissue(tmp_path):
    clear = np.zeros((4, 4, 4), np.uint8)
    clear[..., 0] = 180  # a colour that nobody sees
    from airflow_provider_llmbatch.engine.fusion.readers.wsi import _on_white

    picture = _on_white(Image.fromarray(clear, "RGBA"))
    assert (np.asarray(picture) == 255).all()
    assert not tissue_mask(picture).any()


def test_a_blank_slide_with_the_noise_of_a_scanner_has_no_tissue(tmp_path):
    noise = np.random.default_rng(0).normal(244, 3, (512, 512, 1)).repeat(3, axis=2).astype(np.uint8)
    write_slide(tmp_path / "slide.tiff", noise, 0.5)
    with pytest.raises(FusionInputError, match=r"wsi\.no_tissue"):
        patches_of(tmp_path / "slide.tiff")


def test_real_stained_tissue_is_found(tmp_path):
    from skimage import data

    tissue = data.immunohistochemistry()
    glass = np.full((1024, 1024, 3), 245, np.uint8)
    glass[256:768, 256:768] = tissue
    write_slide(tmp_path / "slide.tiff", glass, 0.5)
    grid, _ = patches_of(tmp_path / "slide.tiff")
    inside = [(x, y) for x, y in grid.places if 256 <= x < 768 and 256 <= y < 768]
    assert inside == list(grid.places)
    assert len(inside) >= 50


def test_of_many_patches_the_same_sample_is_taken_each_time(tmp_path):
    write_slide(tmp_path / "slide.tiff", chessboard(8), 0.5)
    first, _ = patches_of(tmp_path / "slide.tiff", most=5)
    again, _ = patches_of(tmp_path / "slide.tiff", most=5)
    other, _ = patches_of(tmp_path / "slide.tiff", most=5, seed=1)
    assert first == again
    assert (len(first.places), first.tissue) == (5, 64)
    assert other.places != first.places


def without_size(path):
    tifffile.imwrite(path, chessboard(2), tile=(64, 64), photometric="rgb", metadata=None)


def too_coarse(path):
    write_slide(path, chessboard(4), 2.0)


def cut(path):
    write_slide(path, chessboard(4), 0.5)
    path.write_bytes(path.read_bytes()[:1000])


REFUSED = {
    "wsi.not_found": lambda path: None,
    "wsi.no_mpp": without_size,
    "wsi.too_coarse": too_coarse,
    "wsi.unreadable": lambda path: path.write_text("no slide"),
}


@pytest.mark.parametrize(("code", "make"), [*REFUSED.items(), ("wsi.unreadable", cut)])
def test_a_slide_that_cannot_be_used_is_refused_with_its_code(tmp_path, code, make):
    make(tmp_path / "slide.tiff")
    with pytest.raises(FusionInputError) as refused:
        patches_of(tmp_path / "slide.tiff")
    assert refused.value.code == code
