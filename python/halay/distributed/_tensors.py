# SPDX-License-Identifier: Apache-2.0
"""From torch's types, operations and tensors to Halay's. What cannot be sent is refused here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp

from .. import _tensors
from .._core import ffi, lib
from .._tensors import TYPES

_OPS: dict[Any, int] = {
    ReduceOp.SUM: lib.HALAY_SUM,
    ReduceOp.AVG: lib.HALAY_AVERAGE,
    ReduceOp.PRODUCT: lib.HALAY_PROD,
    ReduceOp.MIN: lib.HALAY_MIN,
    ReduceOp.MAX: lib.HALAY_MAX,
    ReduceOp.BAND: lib.HALAY_BAND,
    ReduceOp.BOR: lib.HALAY_BOR,
    ReduceOp.BXOR: lib.HALAY_BXOR,
}

# Of booleans, what torch's own back ends make of them: a sum is true if any is.
_OPS_OF_BOOL: dict[Any, int] = {
    ReduceOp.SUM: lib.HALAY_LOR,
    ReduceOp.MAX: lib.HALAY_LOR,
    ReduceOp.PRODUCT: lib.HALAY_LAND,
    ReduceOp.MIN: lib.HALAY_LAND,
}

IN_PLACE = ffi.cast("void *", -1)


def check(tensor: object, call: str) -> torch.Tensor:
    """The tensor, if its memory can be read and written by Halay."""
    if not isinstance(tensor, torch.Tensor):
        raise _tensors.no_tensor(tensor, f"halay {call}")
    if tensor.layout != torch.strided:
        raise ValueError(
            f"halay {call}: a tensor of layout {tensor.layout} is not supported; "
            "use tensor.to_dense()"
        )
    if tensor.device.type not in _tensors.DEVICES:
        raise ValueError(
            f"halay {call}: the tensor of shape {tuple(tensor.shape)}, {tensor.dtype}, is on "
            f"device {tensor.device}; this back end moves memory of the CPU and of CUDA "
            "devices only: use tensor.cpu(), or name another back end for that device"
        )
    return tensor


def type_of(tensor: torch.Tensor, call: str) -> int:
    found = TYPES.get(tensor.dtype)
    if found is None:
        raise TypeError(
            f"halay {call}: {tensor.dtype} is not supported; convert it, for example with "
            "tensor.float(), or send its bytes: tensor.view(torch.uint8)"
        )
    return found


def op_of(op: ReduceOp, tensor: torch.Tensor, call: str) -> int:
    kind: Any = getattr(op, "op", op)
    found = _OPS_OF_BOOL.get(kind) if tensor.dtype == torch.bool else None
    if found is None:
        found = _OPS.get(kind)
    if found is None:
        raise ValueError(
            f"halay {call}: {kind} is not supported; scale the tensor, then use ReduceOp.SUM"
        )
    if not lib.halay_op_takes(found, type_of(tensor, call)):
        raise ValueError(f"halay {call}: {kind} of {tensor.dtype} is not defined")
    return found


def address(tensor: torch.Tensor | None) -> Any:
    """Where its bytes begin, as void *, or NULL. The tensor has to outlive its use."""
    return ffi.NULL if tensor is None else _tensors.address(tensor)


def source(tensor: torch.Tensor, call: str) -> torch.Tensor:
    """The values of a tensor, one after the other: itself, or a copy."""
    tensor = check(tensor, call).detach()
    return tensor.resolve_conj().resolve_neg().contiguous()


def flat(tensors: Sequence[torch.Tensor], call: str) -> torch.Tensor:
    """The values of all, one tensor after the other."""
    same_type(tensors, call)
    return torch.cat([source(t, call).reshape(-1) for t in tensors])


def same_type(tensors: Sequence[torch.Tensor], call: str) -> None:
    if len({check(t, call).dtype for t in tensors}) > 1:
        raise TypeError(
            f"halay {call}: tensors of different types in one call: "
            + ", ".join(str(t.dtype) for t in tensors)
        )


def check_memory(tensor: torch.Tensor) -> None:
    """Refuses a tensor whose storage has become too small for it: torch would write behind it."""
    if tensor.numel() == 0:
        return
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    if (last + 1) * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise RuntimeError(
            f"halay: the memory of a result, a tensor of shape {tuple(tensor.shape)}, was given "
            "back before the call was done: keep it until wait() has returned"
        )


class Target:
    """Where a result goes: the tensor's own memory, or a buffer that is copied to it at the end."""

    def __init__(self, tensors: Sequence[torch.Tensor], call: str, read: bool = False) -> None:
        self.tensors = tensors
        one = tensors[0]
        same_type(tensors, call)
        self.direct = len(tensors) == 1 and one.is_contiguous() and not one.is_conj()
        if self.direct and not one.is_neg():
            self.buffer = one.detach()
        elif read:
            self.direct, self.buffer = False, flat(tensors, call)
        else:
            self.direct = False
            self.buffer = one.new_empty(sum(t.numel() for t in tensors))

    def finish(self) -> None:
        if self.direct:
            return
        at = 0
        with torch.no_grad():
            for tensor in self.tensors:
                part = self.buffer.narrow(0, at, tensor.numel())
                check_memory(tensor)
                tensor.detach().copy_(part.view(tensor.shape))
                at += tensor.numel()


def cuda_tensors(*what: object) -> list[torch.Tensor]:
    """Those that are there, in sequences and targets, too."""
    found: list[torch.Tensor] = []
    for one in what:
        if isinstance(one, torch.Tensor) and one.is_cuda:
            found.append(one)
        elif isinstance(one, Target):
            found += cuda_tensors(one.buffer, *one.tensors)
        elif isinstance(one, (list, tuple)):
            found += cuda_tensors(*one)
    return found


def devices_of(*what: object) -> set[torch.device]:
    return {tensor.device for tensor in cuda_tensors(*what)}


def sizes(counts: Sequence[int]) -> Any:
    return ffi.new("size_t[]", list(counts))
