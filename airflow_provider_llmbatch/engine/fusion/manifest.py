"""What a run says of itself in the end."""

from __future__ import annotations

import resource
from typing import Any

import torch

from airflow_provider_llmbatch.engine.fusion.loops import Account
from airflow_provider_llmbatch.engine.fusion.opening import Opened

#: Most error codes, and patterns of presence, that a manifest names.
_MOST = 8


def manifest_of(opened: Opened, account: Account, seconds: float, moment: float) -> dict[str, Any]:
    """
    Return what a run says of itself in the end.

    :param seconds: that it took.
    :param moment: when it began, in Unix seconds.
    """
    timings = opened.pipeline.timings
    return {
        "schema_version": 1,
        "result_path": opened.store.uri,
        "run_fingerprint": opened.fingerprint,
        "mode": opened.spec.mode,
        "counts": {
            "total": account.total,
            "ok": account.ok,
            "quarantined": account.quarantined,
            "resumed": account.resumed,
        },
        "missing": dict(account.missing),
        "patterns": dict(account.patterns.most_common(_MOST)),
        "top_error_codes": dict(account.codes.most_common(_MOST)),
        "warnings": dict(account.warnings.most_common(_MOST)),
        "modalities": list(opened.spec.schema.names),
        "plan": {
            "device": opened.plan.device,
            "dtypes": dict(opened.plan.dtypes),
            "reason": opened.plan.reason,
            **({"adviser": opened.choice.to_json()} if opened.choice else {}),
        },
        "processes": opened.team.size,
        "batch_halved": opened.pipeline.halved,
        "model_digest": opened.model_digest,
        "timings": {name: round(getattr(timings, name), 3) for name in ("decode", "h2d", "compute", "write")},
        "seconds": round(seconds, 3),
        "started_at": round(moment, 3),
        "records_per_s": round((account.total - account.resumed) / max(seconds, 1e-6), 3),
        "bytes_to_device": account.bytes,
        "peak_bytes": _peak(opened.plan.device),
    }


def _peak(device: str) -> int:
    """Return the most bytes that the device held; on a CPU those of the process."""
    if device != "cpu":
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
