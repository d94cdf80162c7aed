"""The stage of the operators' tests, for the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_llmbatch.cli.doctor import examine
from airflow_provider_llmbatch.cli.findings import Finding
from tests.operators.conftest import connect, service, simulate, stage

__all__ = ["connect", "service", "simulate", "stage"]


@pytest.fixture
def setting(monkeypatch, tmp_path: Path) -> Callable[..., None]:
    """Return a function that sets options of ``[llmbatch]``; those that are left out lead into a folder."""

    def _set(**options: object) -> None:
        usual = {"state_url": f"sqlite:///{tmp_path}/state.db", "results_path": str(tmp_path / "results")}
        for option, value in {**usual, **options}.items():
            monkeypatch.setenv(f"AIRFLOW__LLMBATCH__{option}".upper(), str(value))

    _set()
    return _set


@pytest.fixture
def found(setting) -> Callable[..., list[Finding]]:
    """Return a function that lets the doctor look, and returns what it says about some things."""

    def _found(*whats: str, conn_ids: tuple[str, ...] = (), call: bool = False) -> list[Finding]:
        return [one for one in examine(conn_ids, call=call) if not whats or one.what.startswith(whats)]

    return _found
