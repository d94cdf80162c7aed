"""
Checkpoints of a training: ``ckpt-<step>/`` with tensors by part, and ``state.json`` last.

A checkpoint counts only when ``state.json`` is there and every tensor file has the digest it says; one that
is damaged is told of, and the one before is taken. Nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from airflow_provider_llmbatch.engine.fusion.store import Store
from airflow_provider_llmbatch.errors import StoreError

#: Checkpoints that are kept, besides those of the best weights.
KEPT = 2
_STATE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What was stored after a step."""

    step: int
    #: by part of the model, and of the optimizers and chance
    tensors: Mapping[str, Mapping[str, Tensor]]
    #: JSON values
    facts: Mapping[str, Any]


@dataclass(slots=True)
class Checkpoints:
    """
    The checkpoints of a run.

    :param store: where they are.
    :param prefix: of their folders.
    """

    store: Store
    prefix: str = "ckpt-"
    #: steps of those that were found damaged
    damaged: list[int] = field(default_factory=list)

    def put(self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Any]) -> None:
        """
        Store a checkpoint, and remove those that nothing refers to any more.

        :param facts: JSON values; ``best_step`` among them names the checkpoint with the best weights.
        """
        files = {}
        for part, values in tensors.items():
            content = save({name: value.contiguous().cpu() for name, value in values.items()})
            files[part] = self.store.put(f"{self.prefix}{step}/{part}.safetensors", content)
        state = {"step": step, "files": files, "facts": dict(facts)}
        self.store.put(f"{self.prefix}{step}/{_STATE}", json.dumps(state, indent=1).encode())
        self._remove_old()

    def clear(self) -> None:
        """Remove all."""
        for step in self._steps():
            self.store.drop(f"{self.prefix}{step}")

    def get(self, step: int) -> Checkpoint | None:
        """Return a checkpoint; None when it is unfinished or damaged."""
        content = self.store.get(f"{self.prefix}{step}/{_STATE}")
        if content is None:
            return None
        try:
            state = json.loads(content)
            tensors = {part: self._tensors(step, part, sha) for part, sha in state["files"].items()}
            return Checkpoint(step=state["step"], tensors=tensors, facts=state["facts"])
        except (ValueError, KeyError, TypeError, AttributeError):
            self.damaged.append(step)
            return None

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that is whole, with the best weights it names; None without one."""
        for step in reversed(self._steps()):
            found = self.get(step)
            if found is not None and (best := found.facts.get("best_step")) not in (None, step):
                found = found if self.get(best) is not None else None
            if found is not None:
                return found
        return None

    def _tensors(self, step: int, part: str, sha: str) -> dict[str, Tensor]:
        content = self.store.get(f"{self.prefix}{step}/{part}.safetensors") or b""
        if hashlib.sha256(content).hexdigest() != sha:
            raise ValueError(f"{part} of checkpoint {step} has another digest.")
        return load(content)

    def _steps(self) -> list[int]:
        found = [name.removeprefix(self.prefix) for name in self.store.folders(self.prefix)]
        return sorted(int(step) for step in found if step.isdecimal())

    def _remove_old(self) -> None:
        steps = self._steps()
        kept = set(steps[-KEPT:])
        for step in steps[-KEPT:]:
            try:
                state = json.loads(self.store.get(f"{self.prefix}{step}/{_STATE}") or b"")
                kept.add(state["facts"]["best_step"])
            except (ValueError, KeyError, TypeError) as error:
                if step == steps[-1]:
                    raise StoreError(f"Checkpoint {step} cannot be read back.") from error
        for step in set(steps) - kept:
            self.store.drop(f"{self.prefix}{step}")
