"""The arena: one buffer, one copy, bytes of the files."""

from __future__ import annotations

import threading

import pytest

from tests.engine.fusion import needed  # noqa: F401  isort: skip

import numpy as np
import torch

from airflow_provider_llmbatch.engine.fusion.batch import ALIGNMENT, Arena, Ring, collate
from airflow_provider_llmbatch.engine.fusion.schema import read_schema
from tests.engine.fusion.conftest import SCHEMA
from tests.engine.fusion.counting import Copies, batch_of, made_up

SMALL = read_schema({**SCHEMA, "facts": {"kind": "facts"}})
PATTERNS = [[True, True, True, True], [False, True, True, False], [True, False, True, True]]


def test_a_batch_holds_what_was_put_in_and_nothing_for_what_is_absent():
    records = made_up(SMALL, PATTERNS)
    batch = batch_of(SMALL, records)
    assert batch.present.tolist() == PATTERNS
    assert batch.parts["wsi"].rows == (0, 1)
    assert batch.parts["wsi"].lengths == (8, 8)
    assert (batch.parts["ct"].values[1].numpy() == records[2]["ct"]).all()
    held = sum(part.values.numel() * part.values.element_size() for part in batch.parts.values())
    assert batch.bytes - held < ALIGNMENT * len(SMALL)


def test_every_modality_is_an_aligned_view_of_the_same_buffer():
    batch = batch_of(SMALL, made_up(SMALL, PATTERNS))
    start = batch.storage.data_ptr()
    for part in batch.parts.values():
        assert part.values.untyped_storage().data_ptr() == batch.storage.untyped_storage().data_ptr()
        assert (part.values.data_ptr() - start) % ALIGNMENT == 0


def test_one_copy_takes_a_batch_to_the_device_and_a_dict_takes_one_for_each_modality():
    records = made_up(SMALL, PATTERNS)
    device = torch.device("meta")
    with Copies() as ours:
        there = batch_of(SMALL, records).to_device(device)
    with Copies() as theirs:
        for spec in SMALL:
            arrays = [torch.from_numpy(record[spec.name]) for record in records if spec.name in record]
            torch.cat(arrays).float().to(device)
    assert (ours.count, theirs.count) == (1, len(SMALL))
    assert there.parts["ct"].values.shape == (2, 1, 16, 32, 32)
    assert there.parts["notes"].values.dtype == torch.int32


def test_the_bytes_of_the_reference_batch_are_less_than_0_3_of_single_precision():
    schema = read_schema(
        {
            "ct": {"kind": "ct", "shape": [96, 192, 192]},
            "wsi": {"kind": "wsi", "patch_px": 512, "max_patches": 64},
            "notes": {"kind": "note"},
        }
    )
    ours = theirs = 0
    for spec in schema:
        count = int(np.prod(spec.shape)) * (spec["max_patches"] if spec.kind == "wsi" else 1)
        ours, theirs = ours + count * spec.width, theirs + count * 4
    assert ours <= 0.3 * theirs


class SlowCopy:
    """A copy that ends when somebody says so."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def synchronize(self) -> None:
        assert self.ended.wait(20)


def test_a_buffer_is_not_filled_again_before_the_copy_out_of_it_has_ended():
    ring, copy = Ring(2), SlowCopy()
    records = made_up(SMALL, PATTERNS)
    first = collate(SMALL, records, ring.take())
    first.to_device(torch.device("meta"), event=copy)
    before = first.storage.clone()
    collate(SMALL, records, ring.take())  # the other buffer is free
    other = made_up(SMALL, PATTERNS, seed=9)
    late = threading.Thread(target=lambda: collate(SMALL, other, ring.take()))
    late.start()
    late.join(0.2)
    assert late.is_alive()
    assert torch.equal(first.storage, before)
    copy.ended.set()
    late.join(20)
    assert not late.is_alive()
    assert not torch.equal(first.storage, before)


def test_a_buffer_is_used_again_without_another_allocation():
    arena = Arena()
    large = collate(SMALL, made_up(SMALL, PATTERNS), arena)
    small = collate(SMALL, made_up(SMALL, PATTERNS[1:2]), arena)
    assert small.storage.data_ptr() == large.storage.data_ptr()


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("ct", np.zeros((1, 16, 32, 32), np.float32)),
        ("ct", np.zeros((3, 16, 32, 32), np.int16)),
        ("wsi", np.zeros((0, 3, 64, 64), np.uint8)),
        ("wsi", np.zeros((2, 4, 64, 64), np.uint8)),
        ("facts", np.full((1, 2), np.nan, np.float32)),
    ],
)
def test_an_array_that_is_not_what_the_schema_says_is_refused(name, array):
    with pytest.raises(ValueError, match=name):
        batch_of(SMALL, [{name: array}])
