"""In which numbers a branch computes, and what becomes of results that are none."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


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
