"""
One batch, one buffer, one copy to the device.

An arena is a run of bytes on the host. Each modality is a typed view into it, at an aligned place; readers
write into the view. The device gets the bytes in one copy and makes the same views of them. Nothing is kept
for records without a modality. What saves time is that bytes are those of the files (int16, uint8) and that
they move at once; that collation makes no further copy on the host is all that is meant by "zero-copy".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from airflow_provider_llmbatch.engine.fusion.schema import ModalitySpec, Schema

#: Bytes to whose multiples views are aligned.
ALIGNMENT = 256
_DTYPES = {"int16": torch.int16, "uint8": torch.uint8, "int32": torch.int32, "float32": torch.float32}


class Event(Protocol):
    """Tells when a copy has ended, as :class:`torch.cuda.Event` does."""

    def synchronize(self) -> None:
        """Wait until it has."""


class Arena:
    """
    A buffer on the host that grows when it must, and is used again.

    :param pinned: page-locked, so that copies to an accelerator run beside the host; needs one.
    """

    def __init__(self, *, pinned: bool = False) -> None:
        self._pinned = pinned
        self._bytes = torch.empty(0, dtype=torch.uint8)
        #: ends of the last copy out of it; None: nothing is under way
        self.busy: Event | None = None

    def take(self, size: int) -> Tensor:
        """Return the first ``size`` bytes; waits until the last copy out of them has ended."""
        if self.busy is not None:
            self.busy.synchronize()
            self.busy = None
        if self._bytes.numel() < size:
            self._bytes = torch.empty(size, dtype=torch.uint8, pin_memory=self._pinned)
        return self._bytes[:size]


class Ring:
    """
    Arenas in turn, so that one is filled while another is copied.

    :param count: how many.
    """

    def __init__(self, count: int, *, pinned: bool = False) -> None:
        self._arenas = [Arena(pinned=pinned) for _ in range(count)]
        self._next = 0

    def take(self) -> Arena:
        """Return the arena that was used longest ago."""
        arena = self._arenas[self._next]
        self._next = (self._next + 1) % len(self._arenas)
        return arena


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The data of one modality."""

    spec: ModalitySpec
    #: indices of the records that have it, ascending
    rows: tuple[int, ...]
    #: (rows, *shape), or for ragged ones (elements of all rows, *shape)
    values: Tensor
    #: how many elements each row has; 1 where it is not ragged
    lengths: tuple[int, ...]
    #: of notes: tokens of the longest window
    longest: int = 0


@dataclass(slots=True)
class Batch:
    """
    Some records, as far as they are there.

    :param schema: their modalities.
    :param size: how many records.
    """

    schema: Schema
    size: int
    parts: dict[str, Part] = field(default_factory=dict)
    #: the bytes behind all parts
    storage: Tensor | None = None
    _arena: Arena | None = None

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which record has which modality: (records, modalities)."""
        found = np.zeros((self.size, len(self.schema)), bool)
        for column, name in enumerate(self.schema.names):
            if name in self.parts:
                found[list(self.parts[name].rows), column] = True
        return found

    @property
    def bytes(self) -> int:
        """How many bytes a copy moves."""
        return 0 if self.storage is None else self.storage.numel()

    def to_device(self, device: torch.device, *, event: Event | None = None) -> Batch:
        """
        Return the batch on a device: one copy of all bytes, none where they are there already.

        :param event: tells when the copy has ended; the arena is not used again before.
        """
        if self.storage is None or device == self.storage.device:
            return self
        there = self.storage.to(device, non_blocking=True)
        if self._arena is not None:
            self._arena.busy = event
        moved = {name: _moved(part, self.storage, there) for name, part in self.parts.items()}
        return Batch(self.schema, self.size, moved, there)


def collate(schema: Schema, records: Sequence[Mapping[str, NDArray[Any]]], arena: Arena) -> Batch:
    """
    Lay the decoded modalities of some records into an arena.

    :param records: of each record its modalities by name; ragged ones have their elements first.
    :raises ValueError: for an array that is not what the schema says, or has a number that is not finite.
    """
    plans = []
    end = 0
    for spec in schema:
        rows = tuple(number for number, record in enumerate(records) if spec.name in record)
        if not rows:
            continue
        arrays = [_checked(spec, records[row][spec.name]) for row in rows]
        lengths = tuple(len(array) if spec.is_ragged else 1 for array in arrays)
        start = -(-end // ALIGNMENT) * ALIGNMENT
        end = start + sum(lengths) * prod(spec.shape) * spec.width
        plans.append((spec, rows, arrays, lengths, start, end))
    storage = arena.take(end)
    batch = Batch(schema, len(records), storage=storage, _arena=arena)
    for spec, rows, arrays, lengths, start, stop in plans:
        values = storage[start:stop].view(_DTYPES[spec.dtype]).view(sum(lengths), *spec.shape)
        place = 0
        for array, length in zip(arrays, lengths, strict=True):
            values[place : place + length].numpy()[...] = array
            place += length
        longest = max(_tokens(array) for array in arrays) if spec.kind == "note" else 0
        batch.parts[spec.name] = Part(spec=spec, rows=rows, values=values, lengths=lengths, longest=longest)
    return batch


def _moved(part: Part, here: Tensor, there: Tensor) -> Part:
    start = (part.values.data_ptr() - here.data_ptr()) if here.device.type != "meta" else 0
    size = part.values.numel() * part.values.element_size()
    values = there[start : start + size].view(part.values.dtype).view(part.values.shape)
    return Part(spec=part.spec, rows=part.rows, values=values, lengths=part.lengths, longest=part.longest)


def _checked(spec: ModalitySpec, array: NDArray[Any]) -> NDArray[Any]:
    elements = array.shape[1:] if spec.is_ragged else array.shape
    if array.dtype.name != spec.dtype or elements != spec.shape or (spec.is_ragged and not len(array)):
        raise ValueError(
            f"{spec.name} is {array.dtype.name} {array.shape}; the schema says {spec.dtype} and elements of "
            f"{spec.shape}."
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{spec.name} has a number that is not finite.")
    return array


def _tokens(windows: NDArray[Any]) -> int:
    """Return the tokens of the longest window; padding is 0."""
    return int((windows != 0).sum(axis=1).max())
