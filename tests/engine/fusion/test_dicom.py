"""CT series, real and made: right to half a Hounsfield unit, or refused with the code that says why."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import numpy as np
import pydicom
from pydicom.data import get_testdata_file
from pydicom.uid import MPEG2MPML, JPEGLSLossless

from airflow_provider_llmbatch.engine.fusion.errors import FusionInputError
from airflow_provider_llmbatch.engine.fusion.readers.dicom_audit import audit_series
from airflow_provider_llmbatch.engine.fusion.readers.dicom_load import (
    AIR,
    Volume,
    canonical,
    load_series,
    stored_values,
    to_grid,
)
from airflow_provider_llmbatch.simulator.cohort import write_series

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")

BUNDLED = Path(pydicom.__file__).parent / "data" / "test_files"
DIRECTORY = BUNDLED / "dicomdirtests"
SPACING = (3.0, 0.8, 0.7)
OBLIQUE = [0.8, 0.6, 0.0, -0.48, 0.64, 0.6]


def phantom(slices: int = 6) -> np.ndarray:
    values = np.random.default_rng(5).integers(-1000, 1500, (slices, 9, 11))
    return values.astype(np.int16)


def axial(folder: Path) -> Path:
    write_series(folder, phantom(), SPACING)
    return folder


def reversed_numbers(folder: Path) -> Path:
    for number, path in enumerate(write_series(folder, phantom(), SPACING)):
        head = pydicom.dcmread(path)
        head.InstanceNumber = 100 - number
        head.save_as(path.with_name(f"{100 - number:03d}.dcm"))
        path.unlink()
    return folder


def slopes_differ(folder: Path) -> Path:
    for number, path in enumerate(write_series(folder, phantom(), SPACING)):
        head = pydicom.dcmread(path)
        head.RescaleSlope, head.RescaleIntercept = 0.5 + number / 4, -900 - number
        head.save_as(path)
    return folder


def jitter(folder: Path) -> Path:
    shift = [0.0, 0.012, -0.012, 0.01, 0.0, 0.0]
    for off, path in zip(shift, write_series(folder, phantom(), SPACING), strict=True):
        head = pydicom.dcmread(path)
        head.ImagePositionPatient[2] = float(head.ImagePositionPatient[2]) + off
        head.save_as(path)
    return folder


def oblique(folder: Path) -> Path:
    write_series(folder, phantom(), SPACING, orientation=OBLIQUE)
    return folder


def sagittal(folder: Path) -> Path:
    write_series(folder, phantom(), SPACING, orientation=[0, 1, 0, 0, 0, -1])
    return folder


def compressed(folder: Path) -> Path:
    for path in write_series(folder, phantom(), SPACING):
        head = pydicom.dcmread(path)
        head.compress(JPEGLSLossless, generate_instance_uid=False)
        head.save_as(path)
    return folder


def real_enhanced(folder: Path) -> Path:
    return Path(get_testdata_file("eCT_Supplemental.dcm"))


def real_axial(folder: Path) -> Path:
    return DIRECTORY / "98892001" / "CT5N"


def real_axial_among_scouts(folder: Path) -> Path:
    return DIRECTORY / "98892001"


ACCEPTED = [
    *(axial, reversed_numbers, slopes_differ, jitter, oblique, sagittal, compressed),
    *(real_enhanced, real_axial, real_axial_among_scouts),
]


@pytest.mark.parametrize("series", ACCEPTED, ids=lambda make: make.__name__)
def test_a_series_that_is_accepted_is_what_two_other_readers_make_of_it(tmp_path, series):
    from tests.engine.fusion.volumes import by_highdicom, by_simpleitk, same_way

    audit = audit_series(series(tmp_path / "series"))
    ours = load_series(audit)
    files = list(dict.fromkeys(each.path for each in audit.slices))
    padding = padded(files)
    for reader in (by_highdicom, by_simpleitk):
        hu, affine = same_way(*reader(files), like=ours.affine)
        seen = np.abs(ours.hu - hu)[~padding] if padding.any() else np.abs(ours.hu - hu)
        assert seen.max() <= 0.5, reader.__name__
        assert np.abs(ours.affine - affine).max() <= (0.02 if series is jitter else 1e-4), reader.__name__


def padded(files: list[Path]) -> np.ndarray:
    """Return which voxels of real slices are padding, for which other readers keep numbers of no meaning."""
    if len(files) == 1:
        return np.zeros(1, bool)
    sets = sorted(map(pydicom.dcmread, files), key=lambda each: float(each.ImagePositionPatient[2]))
    return np.stack([each.pixel_array == each.get("PixelPaddingValue", 10**6) for each in sets])


def test_enhanced_ct_has_the_units_and_the_spacing_of_its_frames(tmp_path):
    volume = load_series(audit_series(real_enhanced(tmp_path)))
    assert (volume.hu.min(), volume.hu.max()) == (-1024, 172)
    assert np.linalg.norm(volume.affine[:3, :3], axis=0) == pytest.approx([10, 0.388672, 0.388672], abs=1e-4)
    assert to_grid(volume, (2, 512, 512), (10, 0.388672, 0.388672)).shape == (2, 512, 512)


def edited(change, which=slice(None)):
    def series(folder: Path) -> Path:
        for path in write_series(folder, phantom(), SPACING)[which]:
            head = pydicom.dcmread(path)
            change(head)
            head.save_as(path)
        return folder

    return series


def without(index: int):
    def series(folder: Path) -> Path:
        write_series(folder, phantom(), SPACING)[index].unlink()
        return folder

    return series


def doubled(folder: Path) -> Path:
    path = write_series(folder, phantom(), SPACING)[2]
    shutil.copy(path, folder / "again.dcm")
    return folder


def leaning(folder: Path) -> Path:
    for number, path in enumerate(write_series(folder, phantom(), SPACING)):
        head = pydicom.dcmread(path)
        head.ImagePositionPatient[1] = float(head.ImagePositionPatient[1]) + number * 0.6
        head.save_as(path)
    return folder


def two_equal_series(folder: Path) -> Path:
    write_series(folder / "a", phantom(), SPACING, uid="2.25.7")
    write_series(folder / "b", phantom(), SPACING, uid="2.25.8")
    return folder


def cut_short(folder: Path) -> Path:
    path = write_series(folder, phantom(), SPACING)[1]
    path.write_bytes(path.read_bytes()[:-40])
    return folder


def turn(head) -> None:
    head.ImageOrientationPatient = [0, 1, 0, -1, 0, 0]


def shrink(head) -> None:
    head.Rows, head.PixelData = 8, head.PixelData[: 8 * 11 * 2]


def undecodable(head) -> None:
    head.file_meta.TransferSyntaxUID = MPEG2MPML
    head["PixelData"].VR = "OB"
    head["PixelData"].is_undefined_length = True
    head.PixelData = pydicom.encaps.encapsulate([bytes(head.PixelData)])


REFUSED = {
    "ct.gap": [lambda _: DIRECTORY / "77654033" / "CT2", without(3)],
    "ct.no_series": [lambda _: DIRECTORY / "98892001" / "CT2N"],
    "ct.photometric": [
        lambda _: DIRECTORY / "77654033" / "CR1",
        edited(lambda head: setattr(head, "PhotometricInterpretation", "MONOCHROME1")),
    ],
    "ct.modality": [lambda _: DIRECTORY / "98892003" / "MR2", lambda _: BUNDLED / "rtplan.dcm"],
    "ct.too_few_slices": [lambda _: BUNDLED / "CT_small.dcm"],
    "ct.not_found": [lambda folder: folder],
    "ct.not_dicom": [lambda _: BUNDLED / "README.txt"],
    "ct.duplicate": [doubled],
    "ct.irregular": [edited(lambda h: setattr(h, "ImagePositionPatient", [-100, -120, -43.6]), slice(2, 3))],
    "ct.tilt": [leaning],
    "ct.mixed_size": [edited(shrink, slice(2, 3))],
    "ct.mixed_orientation": [edited(turn, slice(2, 3))],
    "ct.mixed_spacing": [edited(lambda head: setattr(head, "PixelSpacing", [0.8, 0.9]), slice(2, 3))],
    "ct.ambiguous_series": [two_equal_series],
    "ct.no_rescale": [edited(lambda head: delattr(head, "RescaleSlope"), slice(2, 3))],
    "ct.no_geometry": [
        edited(lambda head: delattr(head, "ImagePositionPatient"), slice(2, 3)),
        lambda _: DIRECTORY / "TINY_ALPHA" / "PT000000",
    ],
    "ct.no_decoder": [edited(undecodable)],
    "ct.truncated": [cut_short],
}
CASES = [(code, make) for code, makers in REFUSED.items() for make in makers]


@pytest.mark.parametrize(("code", "make"), CASES, ids=[f"{code}-{n}" for n, (code, _) in enumerate(CASES)])
def test_a_series_that_makes_no_volume_is_refused_with_its_code(tmp_path, code, make):
    with pytest.raises(FusionInputError) as refused:
        load_series(audit_series(make(tmp_path / "series")))
    assert refused.value.code == code
    assert str(tmp_path) not in str(refused.value)


def test_the_words_of_a_gap_say_where_it_is():
    with pytest.raises(FusionInputError, match=r"202\.50 mm between -99\.48 and 103\.02 mm"):
        audit_series(DIRECTORY / "77654033" / "CT2")


def test_the_axial_series_is_chosen_and_what_was_left_aside_is_told(tmp_path):
    audit = audit_series(DIRECTORY / "98892001")
    assert (audit.shape, dict(audit.aside)) == ((5, 16, 16), {"localizer": 2})
    write_series(tmp_path / "long", phantom(6), SPACING, uid="2.25.7")
    write_series(tmp_path / "short", phantom(4), SPACING, uid="2.25.8")
    assert audit_series(tmp_path).other_series == (4,)
    assert audit_series(tmp_path, "2.25.8").shape[0] == 4
    with pytest.raises(FusionInputError, match=r"ct\.unknown_series"):
        audit_series(tmp_path, "2.25.9")


def test_padding_becomes_air_before_slope_and_intercept(tmp_path):
    hu = phantom()
    hu[0, 0, 0] = 976
    write_series(tmp_path, hu, SPACING, tags={"PixelPaddingValue": 2000})
    assert load_series(audit_series(tmp_path)).hu[0, 0, 0] == AIR


def test_the_sign_of_a_compressed_slice_is_that_of_its_stream():
    values = stored_values(BUNDLED / "J2K_pixelrep_mismatch.dcm")
    assert (values.min(), values.max()) == (-2000, 1896)


@pytest.mark.parametrize("make", [axial, sagittal, oblique])
def test_a_voxel_keeps_its_place_when_a_volume_is_turned(tmp_path, make):
    volume = load_series(audit_series(make(tmp_path)))
    turned = canonical(volume)
    place = np.unravel_index(np.argmax(volume.hu), volume.hu.shape)
    there = np.unravel_index(np.argmax(turned.hu), turned.hu.shape)
    assert volume.affine @ [*place, 1] == pytest.approx(turned.affine @ [*there, 1])
    directions = turned.affine[:3, :3]
    assert all(directions[world, axis] > 0 for axis, world in enumerate((2, 1, 0)))


def test_a_grid_keeps_millimetres_and_has_air_outside():
    hu = np.full((10, 20, 20), 40, np.int16)
    volume = Volume(hu, np.diag([1.0, 1.0, 1.0, 1.0])[[2, 1, 0, 3]] @ np.diag([3.0, 1.0, 1.0, 1.0]))
    grid = to_grid(volume, (20, 20, 20), (3.0, 2.0, 2.0))
    assert (grid[5:15, 5:15, 5:15] == 40).all()
    assert (grid[:, :4] == AIR).all()
    assert (grid[:4] == AIR).all()
