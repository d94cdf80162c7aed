"""
From what a device can do to how a run uses it: a pure function of facts, so that a table tests it.

Standard library only but for :func:`probe`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

#: GiB of memory that one record of a batch may take with everything between the layers.
_GIB_PER_RECORD = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What is known of a device."""

    kind: Literal["cpu", "cuda", "rocm"] = "cpu"
    name: str = ""
    #: compute capability of NVIDIA's
    capability: tuple[int, int] = (0, 0)
    #: architecture of AMD's, such as gfx942
    arch: str = ""
    memory_gib: float = 0.0
    devices: int = 1
    #: cores that this process may use
    cores: int = 1
    #: what a CPU's matrix units know: ``amx_bf16``, ``amx_fp16``, ``avx512_bf16``
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a run uses its device."""

    #: as torch names it
    device: str = "cpu"
    #: number type by kind of modality; what is not named computes in float32
    dtypes: Mapping[str, str] = field(default_factory=dict)
    channels_last: bool = False
    #: page-locked staging buffers, and how many
    pinned: bool = False
    arenas: int = 2
    #: each branch on a stream of its own
    streams: bool = False
    #: threads that compute, and threads that decode
    threads: int = 1
    decoders: int = 1
    #: most records of a batch
    batch: int = 8
    #: why, in a few words
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {**asdict(self), "dtypes": dict(self.dtypes)}


def plan(facts: DeviceFacts, *, batch: int = 8, decoders: int | None = None) -> Plan:
    """
    Return how to use a device.

    :param batch: records that are wanted at once; fewer where memory is small.
    :param decoders: threads that decode; chosen when None.
    """
    wanted = decoders or max(1, min(facts.cores - 1, 8))
    if facts.kind == "cpu":
        return _cpu(facts, batch, wanted)
    half = _half(facts)
    return Plan(
        device="cuda",  # torch calls AMD's devices so as well
        dtypes={kind: half for kind in ("ct", "wsi", "note")} if half != "float32" else {},
        channels_last=half != "float32",
        pinned=True,
        arenas=3,
        streams=facts.memory_gib >= 16,
        threads=max(1, min(facts.cores, 4)),
        decoders=wanted,
        batch=min(batch, _room(facts)),
        reason=f"{facts.kind} {facts.name} {facts.arch or '.'.join(map(str, facts.capability))}: {half}",
    )


def plans(facts: DeviceFacts, *, batch: int = 8, decoders: int | None = None) -> list[Plan]:
    """
    Return all ways to use a device that are known to work there; the first one is :func:`plan`'s.

    :param batch: as of :func:`plan`, and ``decoders`` likewise.
    """
    usual = plan(facts, batch=batch, decoders=decoders)
    found = [usual]
    if usual.dtypes:
        found.append(replace(usual, dtypes={}, reason=f"{usual.reason}, but float32 throughout"))
    if usual.streams:
        found.append(replace(usual, streams=False, reason=f"{usual.reason}, branches one after another"))
    if usual.batch > 1:
        half = usual.batch // 2
        found.append(replace(usual, batch=half, reason=f"{usual.reason}, {half} records at once"))
    if facts.kind != "cpu" and 2 * usual.batch <= _room(facts):
        twice = 2 * usual.batch
        found.append(replace(usual, batch=twice, reason=f"{usual.reason}, {twice} records at once"))
    return found


def _room(facts: DeviceFacts) -> int:
    """Return how many records a GPU's memory holds."""
    return max(1, int(facts.memory_gib * 0.8 / _GIB_PER_RECORD))


def _half(facts: DeviceFacts) -> str:
    """Return the number type of a GPU's branches; float16 alone would need a scaler and earns little."""
    if facts.kind == "rocm":
        return "bfloat16" if facts.arch.startswith(("gfx90a", "gfx94", "gfx95")) else "float32"
    return "bfloat16" if facts.capability >= (8, 0) else "float32"


def _cpu(facts: DeviceFacts, batch: int, decoders: int) -> Plan:
    fast = "amx_bf16" in facts.flags
    return Plan(
        # Without matrix units half precision is mostly emulated: float16 was up to 50 times slower.
        dtypes={"note": "bfloat16", "ct": "bfloat16", "wsi": "bfloat16"} if fast else {},
        channels_last=fast,
        threads=max(1, facts.cores),
        decoders=decoders,
        batch=batch,
        reason="cpu with matrix units: bfloat16" if fast else "cpu without matrix units: float32",
    )


def probe(device: str = "auto") -> DeviceFacts:
    """
    Look at this machine.

    :param device: ``auto``, ``cpu`` or ``cuda``.
    :raises RuntimeError: when ``cuda`` is asked for and there is none.
    """
    import torch

    cores = len(os.sched_getaffinity(0))
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return DeviceFacts(name="cpu", cores=cores, flags=_cpu_flags())
    if not torch.cuda.is_available():
        raise RuntimeError("device is cuda, and torch finds none")
    found = torch.cuda.get_device_properties(0)
    amd = getattr(torch.version, "hip", None) is not None
    return DeviceFacts(
        kind="rocm" if amd else "cuda",
        name=found.name,
        capability=(found.major, found.minor),
        arch=str(getattr(found, "gcnArchName", "")) if amd else "",
        memory_gib=found.total_memory / 2**30,
        devices=torch.cuda.device_count(),
        cores=cores,
    )


def _cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Return which matrix units the kernel says the CPU has."""
    try:
        words = set(path.read_text(encoding="utf-8").split())
    except OSError:
        return frozenset()
    return frozenset({"amx_bf16", "amx_fp16", "avx512_bf16"} & words)
