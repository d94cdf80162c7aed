"""
Exchanges between the processes of one run, on one machine: gloo on CPUs, NCCL where each has a GPU.

All processes make the same exchanges in the same order, whatever their records have: one that lacks a
modality sends nothing, and takes part. What an exchange needs is agreed on before anything moves, so a
mistake of one process is an error in all of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from airflow_provider_llmbatch.errors import StoppedError

#: Seconds after which an exchange counts as dead. A process that ends is seen at once, so this is for one
#: that lives and does nothing; decoding a batch of large files must fit.
TIMEOUT_S = 1800.0
#: Types of numbers that can be exchanged; all processes have to send the same one.
_TYPES = (
    *(torch.float32, torch.bfloat16, torch.float16, torch.float64),
    *(torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool),
)
#: Dimensions of an element that are compared; those of further ones as their product.
_DIMENSIONS = 4
#: Numbers of a declaration before its splits: what is wrong, rows, type, whether a gradient is wanted, shape.
_HEAD = 4 + _DIMENSIONS
_FINE, _WRONG_COUNT, _NEGATIVE, _WRONG_SUM, _WRONG_TYPE = range(5)


class ExchangeError(ValueError):
    """What processes want to exchange does not fit together; raised in all of them, and nothing has moved."""


@dataclass(frozen=True, slots=True)
class Group:
    """The processes of a run."""

    rank: int
    size: int
    #: of this process
    device: torch.device


@contextmanager
def joined(
    rank: int, size: int, meeting: Path, device: torch.device, *, timeout_s: float = TIMEOUT_S
) -> Iterator[Group]:
    """
    Meet the other processes of a run, and part from them in the end.

    :param rank: from 0 to ``size - 1``.
    :param meeting: a file that does not exist yet, the same for all; nothing goes over a network.
    :param device: of this process; with ``cuda`` each has one of its own.
    :param timeout_s: seconds that an exchange may take.
    :raises StoppedError: when they do not come.
    """
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    with _others(rank, size, "meeting"):
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=dist.FileStore(str(meeting), size),  # type: ignore[attr-defined]
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout_s),
        )
    try:
        yield Group(rank, size, device)
    finally:
        dist.destroy_process_group()


class AllToAllV(torch.autograd.Function):
    """
    Rows to other processes; their gradients come back the same way.

    Parameters of :meth:`apply`: ``values`` (rows, …), ``sent`` and ``received`` (rows to and from each
    process, in their order), ``group``.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, sent: list[int], received: list[int], group: Group) -> Tensor:  # noqa: D102
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _moved(values, sent, received, group)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: D102
        return _moved(gradient, ctx.received, ctx.sent, ctx.group), None, None, None


def all_to_all_v(values: Tensor, splits: Sequence[int], group: Group) -> tuple[Tensor, list[int]]:
    """
    Send some rows to each process, and return those that each sends here.

    When any process wants gradients all get a result that has them: the loss of each has to depend on it, be
    it by a sum over none of its rows, or the gradients of the others wait for it.

    :param values: (rows, …): of any of the usual types, elements of one shape in all processes.
    :param splits: how many of the rows go to each process, in their order; none is fine.
    :return: (received rows, …), and how many came from each process.
    :raises ExchangeError: in all processes, when splits do not fit rows anywhere, or elements differ.
    :raises StoppedError: when another process is gone.
    """
    declared = _declarations(values, splits, group)
    _refuse_wrong(declared, group)
    received = [each[_HEAD + group.rank] for each in declared]
    sent = [int(each) for each in splits]
    if any(each[3] for each in declared):
        if not values.requires_grad:
            values = values.detach().requires_grad_()
        moved: Tensor = AllToAllV.apply(values, sent, received, group)  # type: ignore[no-untyped-call]
        return moved, received
    return _moved(values, sent, received, group), received


def gather_v(values: Tensor, group: Group) -> list[Tensor]:
    """
    Return the rows of every process, in all of them.

    :param values: (rows, …); processes may have different numbers of rows, also none.
    """
    copies = values.repeat(group.size, *(1 for _ in values.shape[1:]))
    found, received = all_to_all_v(copies, [len(values)] * group.size, group)
    return list(found.split(received))


def add_up(values: Tensor, group: Group) -> Tensor:
    """Return the sum of a tensor over all processes, without gradients; each gives the same shape."""
    total = values.detach().to(group.device, copy=True)
    with _others(group.rank, group.size, "adding up"):
        dist.all_reduce(total)
    return total.to(values.device)


def add_gradients(parameters: Iterable[Tensor], group: Group) -> None:
    """
    Add the gradients of parameters up over all processes, in place.

    A parameter without a gradient gets one where another process has one, and none where none has: an
    optimizer leaves it alone then, as in one process.

    :param parameters: the same ones, in the same order, in all processes.
    """
    wanted = [each for each in parameters if each.requires_grad]
    if not wanted:
        return
    there = [float(each.grad is not None) for each in wanted]
    own = [torch.zeros_like(each) if each.grad is None else each.grad for each in wanted]
    marks = torch.tensor(there, device=own[0].device)
    total = add_up(torch.cat([marks, *(each.float().flatten() for each in own)]), group)
    anywhere, sums = total[: len(wanted)].tolist(), total[len(wanted) :]
    place = 0
    for each, found in zip(wanted, anywhere, strict=True):
        if found:
            each.grad = sums[place : place + each.numel()].view_as(each).to(each.dtype)
        place += each.numel()


def wait_for_all(group: Group) -> None:
    """Return when all processes have come here."""
    add_up(torch.zeros(1), group)


def _declarations(values: Tensor, splits: Sequence[int], group: Group) -> list[list[int]]:
    """Tell all processes what this one wants to send, and return what each wants."""
    problem = _FINE if values.dtype in _TYPES else _WRONG_TYPE
    if len(splits) != group.size:
        problem = _WRONG_COUNT
    elif min(splits) < 0:
        problem = _NEGATIVE
    elif sum(splits) != len(values):
        problem = _WRONG_SUM
    sides = list(values.shape[1:])
    if len(sides) > _DIMENSIONS:
        sides = [*sides[: _DIMENSIONS - 1], math.prod(sides[_DIMENSIONS - 1 :])]
    shape = [*sides, *[-1] * (_DIMENSIONS - len(sides))]
    kind = _TYPES.index(values.dtype) if values.dtype in _TYPES else -1
    wants = int(values.requires_grad and torch.is_grad_enabled())
    counts = [int(each) for each in splits] if problem in (_FINE, _WRONG_SUM) else [0] * group.size
    own = [problem, len(values), kind, wants, *shape, *counts]
    mine = torch.tensor(own, dtype=torch.int64, device=group.device)
    found = [torch.empty_like(mine) for _ in range(group.size)]
    with _others(group.rank, group.size, "agreeing on an exchange"):
        dist.all_gather(found, mine)
    return [each.tolist() for each in found]


def _refuse_wrong(declared: Sequence[Sequence[int]], group: Group) -> None:
    """Raise for what does not fit; all processes see the same declarations, and so raise together."""
    words = {
        _WRONG_COUNT: f"has splits for another number of processes than {group.size}",
        _NEGATIVE: "has a split below 0",
        _WRONG_TYPE: "has numbers of a type that is not exchanged",
    }
    for rank, (problem, rows, *_) in enumerate(declared):
        if problem == _WRONG_SUM:
            splits = list(declared[rank][_HEAD:])
            raise ExchangeError(
                f"Process {rank} has {rows} rows, and its splits {splits} send {sum(splits)}; both have to "
                "be equal. Nothing was sent."
            )
        if problem:
            raise ExchangeError(f"Process {rank} {words[problem]}; nothing was sent.")
    for rank, each in enumerate(declared):
        if (each[2], each[4:_HEAD]) != (declared[0][2], declared[0][4:_HEAD]):
            raise ExchangeError(f"Process {rank} sends {_said(each)}, process 0 {_said(declared[0])}.")


def _said(declared: Sequence[int]) -> str:
    shape = tuple(side for side in declared[4:_HEAD] if side >= 0)
    return f"{str(_TYPES[declared[2]]).removeprefix('torch.')} elements of {shape}"


def _moved(values: Tensor, sent: list[int], received: list[int], group: Group) -> Tensor:
    """Exchange rows as bytes: gloo does not know all types, and nothing is computed on the way."""
    shape = values.shape[1:]
    width = math.prod(shape) * values.element_size()
    out = values.detach().to(group.device).contiguous().reshape(-1).view(torch.uint8).view(len(values), width)
    back = out.new_empty(sum(received), width)
    with _others(group.rank, group.size, "an exchange"):
        dist.all_to_all_single(back, out, received, sent)
    return back.view(-1).view(values.dtype).view(sum(received), *shape).to(values.device)


@contextmanager
def _others(rank: int, size: int, doing: str) -> Iterator[None]:
    """Say in words that another process is gone: those of the library name its source files."""
    try:
        yield
    except RuntimeError as error:
        raise LostError(
            f"Process {rank} of {size} lost another one while {doing} ({type(error).__name__}). "
            "The cause is in what that one said; a retry goes on from what is stored."
        ) from error


class LostError(StoppedError):
    """
    Another process of the run is gone, or did not come in time.

    :param reason: in words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason, retryable=True)
