"""Labelled records as training and evaluation see them: what windows stored, and how to decode them again."""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors.torch import load as read_tensors
from torch import Tensor

from airflow_provider_llmbatch.engine.fusion import store as names
from airflow_provider_llmbatch.engine.fusion.errors import FusionInputError
from airflow_provider_llmbatch.engine.fusion.examine import Examiner
from airflow_provider_llmbatch.engine.fusion.opening import Opened
from airflow_provider_llmbatch.engine.fusion.pipeline import AHEAD
from airflow_provider_llmbatch.engine.fusion.records import Record
from airflow_provider_llmbatch.errors import InputError, StoreError

Arrays = dict[str, NDArray[Any]]
#: Yields what is decoded of some examples at a time; later ones are decoded meanwhile.
Load = Callable[[Iterable[Sequence[int]]], Iterator[list[Arrays]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """What the encoder of a modality gave."""

    #: (rows, width)
    values: Tensor
    #: (examples,) of int64: the row of each example, -1 where the modality is missing
    places: Tensor

    def of(self, examples: Tensor) -> tuple[Tensor, list[int]]:
        """Return the vectors of those examples that have one, and which of them these are."""
        places = self.places[examples]
        there = torch.nonzero(places >= 0).squeeze(1)
        return self.values[places[there]], there.tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Labelled records that can be used."""

    #: (examples,) of int64: which class
    targets: Tensor
    #: by modality
    vectors: dict[str, Vectors]
    #: decodes what is not taken from the vectors
    load: Load

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """What the windows of a run say of the records that have a label."""

    records: list[Record]
    vectors: dict[str, Vectors]
    #: usable records without a label
    unlabelled: int

    @property
    def labels(self) -> list[Any]:
        """The label of each record."""
        return [record.label for record in self.records]


def read_labelled(opened: Opened, windows: int) -> Labelled:
    """
    Return the labelled records of a run whose windows are stored, with the vectors of their modalities.

    :param windows: how many there are.
    :raises InputError: when no record has a label.
    :raises StoreError: when a window is gone or damaged.
    """
    modalities = opened.spec.schema.names
    values: dict[str, list[Tensor]] = {name: [] for name in modalities}
    places: dict[str, list[int]] = {name: [] for name in modalities}
    records: list[Record] = []
    unlabelled = 0
    source = opened.records()
    for row, vectors in itertools.chain.from_iterable(_window(opened, n) for n in range(windows)):
        record = next(each for each in source if each.index == row["index"])
        if not row["present"]:
            continue
        if record.label is None or record.label == "":
            unlabelled += 1
            continue
        there = {name: record.inputs[name] for name in row["present"]}
        records.append(replace(record, inputs=there))
        for name in modalities:
            places[name].append(len(values[name]) if name in there else -1)
            if name in there:
                values[name].append(vectors[name])
    if not records:
        raise InputError("No record of the source has a label and can be used.")
    kept = {
        name: Vectors(values=torch.stack(found), places=torch.tensor(places[name]))
        for name, found in values.items()
        if found
    }
    return Labelled(records=records, vectors=kept, unlabelled=unlabelled)


def _window(opened: Opened, number: int) -> Iterator[tuple[dict[str, Any], dict[str, Tensor]]]:
    """Yield the rows of a window with their vectors."""
    rows = opened.store.get(names.part_name(number, "jsonl"))
    tensors = opened.store.get(names.part_name(number, "safetensors"))
    if rows is None or tensors is None:
        raise StoreError(f"A part of window {number} is gone; run the task again.")
    held = read_tensors(tensors)
    places = {
        name.removeprefix("rows."): {row: place for place, row in enumerate(found.tolist())}
        for name, found in held.items()
        if name.startswith("rows.")
    }
    for number_of_row, line in enumerate(rows.splitlines()):
        found = {
            name: held[f"vectors.{name}"][at[number_of_row]]
            for name, at in places.items()
            if number_of_row in at
        }
        yield json.loads(line), found


def loader(records: Sequence[Record], examiner: Examiner, trained: Sequence[str], workers: int) -> Load:
    """
    Return what decodes the modalities that are trained from records' files, by threads and ahead of time.

    :param trained: names of modalities; with none, nothing is decoded.
    """
    reduced = [
        replace(record, inputs={name: given for name, given in record.inputs.items() if name in trained})
        for record in records
    ]

    def load(batches: Iterable[Sequence[int]]) -> Iterator[list[Arrays]]:
        pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
        waiting: deque[list[Future[Arrays]]] = deque()
        try:
            for batch in batches:
                waiting.append([pool.submit(_decoded, examiner, reduced[example]) for example in batch])
                if len(waiting) > AHEAD:
                    yield [future.result() for future in waiting.popleft()]
            while waiting:
                yield [future.result() for future in waiting.popleft()]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    return load if trained else _nothing


def _nothing(batches: Iterable[Sequence[int]]) -> Iterator[list[Arrays]]:
    """Decode nothing."""
    for batch in batches:
        yield [{} for _ in batch]


def _decoded(examiner: Examiner, record: Record) -> Arrays:
    """Return the arrays of a record all of whose inputs could be read before."""
    verdict = examiner.look(record)
    try:
        found = {name: decode() for name, decode in verdict.present.items()}
    except FusionInputError as error:
        raise _changed(error) from error
    if set(found) != set(record.inputs):
        raise _changed(None)
    return found


def _changed(error: FusionInputError | None) -> InputError:
    code = f" ({error.code})" if error else ""
    return InputError(
        f"A file that could be read before cannot be read now{code}. Leave the files of a source as they are "
        "while it is trained on, and run the task again."
    )
