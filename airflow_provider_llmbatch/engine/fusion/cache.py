"""
Decoded inputs, found again by what the files hold and how they were read.

A file that is cut short or foreign counts as not there and is written again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airflow_provider_llmbatch.engine.fusion.errors import missing_library
from airflow_provider_llmbatch.engine.identity import canonical_json

try:
    from safetensors import SafetensorError
    from safetensors.numpy import load, save
except ImportError as error:
    raise missing_library("safetensors", "fusion") from error

Array = NDArray[Any]


class Cache:
    """
    A folder of decoded arrays.

    :param folder: made when it is not there; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = Lock()
        #: arrays that were found, and that were not
        self.hits = self.misses = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, files: list[Path], reading: Mapping[str, Any], decode: Callable[[], Array]) -> Array:
        """
        Return what is decoded from files, from here when it was decoded before.

        :param reading: version and parameters of the reader.
        """
        if self._folder is None:
            return decode()
        path = self._folder / f"{_digest(files, reading)}.safetensors"
        kept = _read(path)
        if kept is not None:
            with self._lock:
                self.hits += 1
            return kept
        with self._lock:
            self.misses += 1
        array = np.ascontiguousarray(decode())
        draft = path.with_name(f".{path.name}.{os.getpid()}-{id(array):x}.draft")
        try:
            draft.write_bytes(save({"array": array}))
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        return array


def _digest(files: list[Path], reading: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(canonical_json(dict(reading)).encode())
    for file in files:
        with open(file, "rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def _read(path: Path) -> Array | None:
    try:
        return load(path.read_bytes())["array"]
    except (OSError, KeyError, SafetensorError, ValueError):
        return None
