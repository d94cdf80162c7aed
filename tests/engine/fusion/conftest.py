"""What the tests of fusion share: small schemas, cohorts, and runs in a worker or in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCHEMA = {
    "ct": {"kind": "ct", "shape": [16, 32, 32], "spacing_mm": [8, 9, 9]},
    "wsi": {"kind": "wsi", "patch_px": 64, "max_patches": 8},
    "notes": {"kind": "note"},
}
#: Threads that spin while they wait are slow when other tests have the cores.
QUIET = {"OMP_WAIT_POLICY": "PASSIVE"}
os.environ.update(QUIET)


@pytest.fixture(scope="session")
def cohort(tmp_path_factory) -> Callable[..., Path]:
    """Return ``cohort(count, seed=, missing=)``, which makes each cohort once and returns its records."""
    from airflow_provider_llmbatch.simulator.cohort import make_cohort

    made: dict[Any, Path] = {}

    def _make(count: int, *, seed: int = 0, missing: float = 0.0) -> Path:
        key = (count, seed, missing)
        if key not in made:
            made[key] = make_cohort(tmp_path_factory.mktemp("cohort"), count, seed=seed, missing=missing)
        return made[key]

    return _make


@pytest.fixture
def source(tmp_path) -> Callable[..., Path]:
    """Return ``source(*rows)``, which writes the rows as JSONL and returns the file."""

    def _write(*rows: dict[str, Any], name: str = "records.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return _write


def rows_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all rows of a run, in order."""
    parts = sorted(Path(manifest["result_path"]).glob("part-*.jsonl"))
    return [json.loads(line) for part in parts for line in part.read_text("utf-8").splitlines()]


def quarantine_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    lines = (Path(manifest["result_path"]) / "quarantine.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]
