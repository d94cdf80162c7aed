"""In which numbers a branch computes, what becomes of results that are none, and how each branch steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from airflow_provider_llmbatch.engine.fusion.policy import BranchPolicy

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
#: Name of what reads all branches, among their names; no modality can be called so.
FUSION = "fusion-head"


def branch_autocast(device: torch.device, dtype: str) -> AbstractContextManager[object]:
    """
    Return the context in which a branch computes; for float32 one that shuts an outer autocast off.

    :param dtype: ``float32``, ``bfloat16`` or ``float16``.
    """
    if device.type == "meta":
        return nullcontext()
    return torch.autocast(
        device.type, _TYPES[dtype] if dtype != "float32" else None, enabled=dtype != "float32"
    )


def finite_guard(values: Tensor) -> tuple[Tensor, Tensor]:
    """
    Cut what is not finite off at the end of a branch, in single precision.

    :param values: (rows, width).
    :return: the values with such rows set to 0, and which rows are good: (rows,) of bool. The gradient
        of a row that is not good is 0, and so no other row's suffers.
    """
    single = values.float()
    good = torch.isfinite(single).all(dim=1)
    return torch.where(good[:, None], single, torch.zeros_like(single)), good


class BranchOptimizers:
    """
    One optimizer for each branch (encoder and projection), and one for the fusion that reads them.

    A branch whose gradients are not finite does not step, and nothing of the others changes: neither their
    gradients, which are shortened each by itself, nor their state.

    :param encoders: by modality.
    :param projections: by modality.
    :param fusion: what reads all branches.
    :param policies: by modality.
    :param learning_rate: of encoders without one of their own.
    :param head_rate: of projections and fusion.
    :param scaled: whether a branch computes in float16, whose small gradients would vanish: the loss is
        scaled.
    """

    def __init__(
        self,
        encoders: Mapping[str, nn.Module],
        projections: Mapping[str, nn.Module],
        fusion: nn.Module,
        *,
        policies: Mapping[str, BranchPolicy],
        learning_rate: float,
        head_rate: float,
        scaled: bool = False,
        device: str = "cpu",
    ) -> None:
        self._clips = {**{name: policies[name].clip for name in encoders}, FUSION: 1.0}
        self._all = {FUSION: _optimizer([(fusion, head_rate)])}
        for name, encoder in encoders.items():
            policy = policies[name]
            encoder.requires_grad_(not policy.frozen)
            own = [] if policy.frozen else [(encoder, policy.learning_rate or learning_rate)]
            self._all[name] = _optimizer([*own, (projections[name], head_rate)])
        self._scaler = torch.amp.GradScaler(device, enabled=scaled)
        #: by branch, the steps that were not taken
        self.skipped: dict[str, int] = {}

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a loss, anew."""
        for each in self._all.values():
            each.zero_grad(set_to_none=True)
        self._scaler.scale(loss).backward()

    def step(self, share: float, without: Collection[str] = ()) -> None:
        """
        Step each branch that can.

        :param share: of the learning rates, from 0 to 1, that is used.
        :param without: branches that do not step, because what they gave was not finite.
        """
        for name, optimizer in self._all.items():
            gradients = _gradients(optimizer)
            if not gradients:
                continue
            if self._scaler.is_enabled():
                self._scaler.unscale_(optimizer)
            for group in optimizer.param_groups:
                group["lr"] = group["whole_rate"] * share
            norm = torch.nn.utils.get_total_norm(gradients)
            if name in without or not torch.isfinite(norm):
                self.skipped[name] = self.skipped.get(name, 0) + 1
                continue
            parameters = [each for group in optimizer.param_groups for each in group["params"]]
            torch.nn.utils.clip_grads_with_norm_(parameters, self._clips[name], norm)
            optimizer.step()
        if self._scaler.is_enabled():
            self._scaler.update()

    def parameters(self) -> Iterable[Tensor]:
        """Yield what has gradients after :meth:`backward`: what an exchange between processes averages."""
        for optimizer in self._all.values():
            for group in optimizer.param_groups:
                yield from group["params"]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return what a checkpoint keeps: tensors by name, and numbers."""
        tensors = {
            f"{name}.{number}.{field}": value
            for name, optimizer in self._all.items()
            for number, fields in optimizer.state_dict()["state"].items()
            for field, value in fields.items()
        }
        return tensors, {"scaler": self._scaler.state_dict(), "skipped": dict(self.skipped)}

    def load(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Take what :meth:`state` gave."""
        states: dict[str, dict[int, dict[str, Tensor]]] = {name: {} for name in self._all}
        for key, value in tensors.items():
            name, number, field = key.split(".")
            states[name].setdefault(int(number), {})[field] = value
        for name, optimizer in self._all.items():
            optimizer.load_state_dict({**optimizer.state_dict(), "state": states[name]})
        if self._scaler.is_enabled():
            self._scaler.load_state_dict(dict(numbers["scaler"]))
        self.skipped = dict(numbers["skipped"])


def _optimizer(parts: Iterable[tuple[nn.Module, float]]) -> torch.optim.Optimizer:
    groups = [{"params": list(part.parameters()), "lr": rate, "whole_rate": rate} for part, rate in parts]
    return torch.optim.AdamW(groups, weight_decay=0.05)


def _gradients(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [
        each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None
    ]
