"""
What a run leaves behind, below ``<result_path>/run=<fingerprint>``.

``part-<n>.jsonl`` a row a record · ``part-<n>.safetensors`` embeddings · ``window-<n>.json`` the account of a
window with the digests of its parts: only with it is the window done · ``quarantine.jsonl`` · ``plan.json`` ·
``manifest.json``, written last · ``ckpt-<step>/`` of a training. Each file appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.locations import is_local
from airflow_provider_llmbatch.errors import StoreError

MANIFEST, QUARANTINE, PLAN = "manifest.json", "quarantine.jsonl", "plan.json"


def write_file(path: Path, content: bytes) -> None:
    """Write a file in one step, and onto the disk before anything speaks of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with open(draft, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


class Store:
    """
    A folder of one run.

    :param place: a path, or a URL that fsspec opens with what the environment says.
    :param sweep: remove what a kill has left there; not while others write to it.
    :raises StoreError: when it cannot be made.
    """

    def __init__(self, place: str, *, sweep: bool = True) -> None:
        self.uri = place
        self._folder = Path(place.rpartition("://")[2]) if is_local(place) else None
        self._files: Any = None
        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                for draft in self._folder.rglob(".*.draft") if sweep else ():
                    draft.unlink(missing_ok=True)
            else:
                import fsspec

                self._files, self._inside = fsspec.core.url_to_fs(place)
        except (OSError, ValueError, ImportError) as error:
            raise StoreError(f"The result path cannot be opened ({type(error).__name__}).") from error

    def put(self, name: str, content: bytes) -> str:
        """
        Write a file, and return its SHA-256.

        :raises StoreError: when it cannot be written.
        """
        try:
            if self._folder is not None:
                (self._folder / name).parent.mkdir(exist_ok=True)
                write_file(self._folder / name, content)
            else:
                self._files.pipe_file(f"{self._inside}/{name}", content)
        except OSError as error:
            raise StoreError(
                f"{name} cannot be written: {error.strerror or type(error).__name__}."
            ) from error
        return hashlib.sha256(content).hexdigest()

    def get(self, name: str) -> bytes | None:
        """
        Read a file; None when it is not there.

        :raises StoreError: when it cannot be read.
        """
        try:
            if self._folder is not None:
                return (self._folder / name).read_bytes()
            return bytes(self._files.cat_file(f"{self._inside}/{name}"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{name} cannot be read: {error.strerror or type(error).__name__}.") from error

    def folders(self, prefix: str) -> list[str]:
        """
        Return the names of folders that begin so.

        :raises StoreError: when they cannot be listed.
        """
        try:
            if self._folder is not None:
                return [each.name for each in self._folder.glob(f"{prefix}*") if each.is_dir()]
            self._files.invalidate_cache(self._inside)
            inside = self._files.ls(self._inside, detail=False)
            found = [str(each).rstrip("/").rpartition("/")[2] for each in inside]
            return [each for each in found if each.startswith(prefix)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(
                f"The result path cannot be listed: {error.strerror or type(error).__name__}."
            ) from error

    def drop(self, name: str) -> None:
        """Remove a folder and all in it."""
        if self._folder is not None:
            shutil.rmtree(self._folder / name, ignore_errors=True)
        else:
            self._files.rm(f"{self._inside}/{name}", recursive=True)

    def done(self, number: int) -> dict[str, Any] | None:
        """Return the account of a window that is done and whole, None when it must be done again."""
        content = self.get(window_name(number))
        try:
            account: dict[str, Any] = json.loads(content or b"")
            parts = account["parts"].items()
        except (ValueError, KeyError, AttributeError):
            return None
        whole = all(hashlib.sha256(self.get(name) or b"").hexdigest() == sha for name, sha in parts)
        return account if whole else None


def window_name(number: int) -> str:
    """Return the file name of a window's account."""
    return f"window-{number:05d}.json"


def part_name(number: int, ending: str) -> str:
    """Return the file name of a window's part."""
    return f"part-{number:05d}.{ending}"


def lines(rows: list[dict[str, Any]]) -> bytes:
    """Return rows as JSONL: the same bytes for the same rows."""
    return b"".join(json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n" for row in rows)
