"""A run from its spec to its manifest: windows in every mode, and behind them what the mode adds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion import store as names
from airflow_provider_llmbatch.engine.fusion.adviser import Ask
from airflow_provider_llmbatch.engine.fusion.dist import joined
from airflow_provider_llmbatch.engine.fusion.loops import Emit, do_windows
from airflow_provider_llmbatch.engine.fusion.manifest import manifest_of
from airflow_provider_llmbatch.engine.fusion.opening import Opened, look_at_device, open_run
from airflow_provider_llmbatch.engine.fusion.spec import Spec
from airflow_provider_llmbatch.engine.fusion.team import Team


def run(
    spec: Spec, emit: Emit, clocks: Clocks, *, team: Team | None = None, ask: Ask | None = None
) -> dict[str, Any]:
    """
    Do what a spec says, and return the manifest.

    :param team: who does it together; None for one process. The one that leads stores the manifest.
    :param ask: asks for a plan; None takes the usual one.
    :raises TooManyBadError: when more than ``max_bad_fraction`` is quarantined.
    :raises ConfigurationError: for a spec that cannot be followed here.
    :raises InputError: when the source cannot be read, or has no labels where they are needed.
    :raises StoreError: when results cannot be stored.
    """
    began, moment = clocks.now(), clocks.wall()
    afterwards = _afterwards(spec)
    opened = open_run(spec, emit, clocks, team=team, ask=ask)
    account = do_windows(opened, emit)
    further = afterwards(opened, account.windows, emit)
    manifest = {**manifest_of(opened, account, clocks.now() - began, moment), **further}
    if opened.team.leads:
        opened.store.put(names.MANIFEST, json.dumps(manifest, indent=1).encode())
    return manifest


def run_together(
    spec: Spec, emit: Emit, clocks: Clocks, *, rank: int, size: int, meeting: str
) -> dict[str, Any]:
    """
    Do one process's share of what a spec says, and return the manifest.

    :param rank: its number, and ``size`` how many there are.
    :param meeting: the file by which they meet.
    :raises StoppedError: when another one is gone.
    """
    kind = look_at_device(spec).kind
    device = torch.device("cpu") if kind == "cpu" else torch.device("cuda", rank)
    with joined(rank, size, Path(meeting), device) as group:
        return run(spec, emit if rank == 0 else lambda event: None, clocks, team=Team(group))


def _afterwards(spec: Spec) -> Callable[[Opened, int, Emit], dict[str, Any]]:
    """
    Return what a mode does with the windows that are stored, and says of it in the manifest.

    It is looked up before there are any, for it may need a library that is not installed.
    """
    if spec.mode == "train":
        from airflow_provider_llmbatch.engine.fusion.training import train

        return train
    if spec.mode == "evaluate":
        from airflow_provider_llmbatch.engine.fusion.evaluation import evaluate

        return lambda opened, windows, emit: evaluate(opened, windows, emit) if opened.team.leads else {}
    return lambda opened, windows, emit: {}
