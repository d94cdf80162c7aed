"""A run from its spec to its manifest: windows in every mode, and behind them what the mode adds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from airflow_provider_llmbatch.engine.clocks import Clocks
from airflow_provider_llmbatch.engine.fusion import store as names
from airflow_provider_llmbatch.engine.fusion.loops import Emit, do_windows, manifest_of
from airflow_provider_llmbatch.engine.fusion.opening import Opened, open_run
from airflow_provider_llmbatch.engine.fusion.spec import Spec


def run(spec: Spec, emit: Emit, clocks: Clocks) -> dict[str, Any]:
    """
    Do what a spec says, and return the manifest.

    :raises TooManyBadError: when more than ``max_bad_fraction`` is quarantined.
    :raises ConfigurationError: for a spec that cannot be followed here.
    :raises InputError: when the source cannot be read, or has no labels where they are needed.
    :raises StoreError: when results cannot be stored.
    """
    began, moment = clocks.now(), clocks.wall()
    afterwards = _afterwards(spec)
    opened = open_run(spec, emit, clocks)
    account = do_windows(opened, emit)
    further = afterwards(opened, account.windows, emit)
    manifest = {**manifest_of(opened, account, clocks.now() - began, moment), **further}
    opened.store.put(names.MANIFEST, json.dumps(manifest, indent=1).encode())
    return manifest


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

        return evaluate
    return lambda opened, windows, emit: {}
