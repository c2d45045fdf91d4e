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

_PREMUL_SUM = getattr(ReduceOp, "PREMUL_SUM", None)  # since torch 2.0

IN_PLACE = ffi.cast("void *", -1)


def check(tensor: object, call: str) -> torch.Tensor:
    """The tensor whose memory Halay reads and writes; or why there is none."""
    if not isinstance(tensor, torch.Tensor):
        raise _tensors.no_tensor(tensor, f"halay {call}")
    tensor = _tensors.plain(tensor, f"halay {call}")
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
    _tensors.refuse_unreal(tensor, f"halay {call}")
    return tensor


def writable(tensor: object, call: str) -> torch.Tensor:
    """As check(), of a tensor that gets a result, on this rank or on another one."""
    found = check(tensor, call)
    if _tensors.shares_memory(found):
        what = f"halay {call}: tensor of shape {tuple(found.shape)}, {found.dtype}"
        raise _tensors.shared_error(found, what)
    return found


def type_of(tensor: torch.Tensor, call: str) -> int:
    found = TYPES.get(tensor.dtype)
    if found is None:
        raise TypeError(
            f"halay {call}: {tensor.dtype} is not supported; convert it, for example with "
            "tensor.float()"
        )
    return found


def moved_type(tensor: torch.Tensor, call: str) -> int:
    """As type_of(), where nothing is reduced."""
    found = _tensors.MOVED.get(tensor.dtype)
    if found is None:
        raise TypeError(
            f"halay {call}: {tensor.dtype} is not supported; convert it, for example with "
            "tensor.float(), or send its bytes: tensor.view(torch.uint8)"
        )
    return found


def op_of(op: ReduceOp, tensor: torch.Tensor, call: str) -> int:
    kind: Any = getattr(op, "op", op)
    type_, found = type_of(tensor, call), None
    if kind == _PREMUL_SUM:
        found = lib.HALAY_SUM if tensor.is_floating_point() or tensor.is_complex() else None
    elif tensor.dtype == torch.bool:
        found = _OPS_OF_BOOL.get(kind)
    if found is None:
        found = _OPS.get(kind)
    if found is None or not lib.halay_op_takes(found, type_):
        raise ValueError(f"halay {call}: {kind} of {tensor.dtype} is not defined")
    return found


def factor_of(op: ReduceOp) -> Any:
    """By what each rank multiplies before the sum; None where it does not."""
    if getattr(op, "op", op) != _PREMUL_SUM:
        return None
    state: Any = op
    return state.__getstate__()[1]


def scale(tensor: torch.Tensor, op: ReduceOp) -> None:
    """What an operation does to each rank's own values before they are reduced."""
    factor = factor_of(op)
    if factor is not None:
        with torch.no_grad():
            tensor.mul_(factor)


def scaled(tensor: torch.Tensor, op: ReduceOp) -> torch.Tensor:
    """As scale(), of a copy where something changes."""
    if factor_of(op) is not None:
        tensor = tensor.clone()
        scale(tensor, op)
    return tensor


def address(tensor: torch.Tensor | None) -> Any:
    """Where its bytes begin, as void *, or NULL. The tensor has to outlive its use."""
    return ffi.NULL if tensor is None else _tensors.address(tensor)


def source(tensor: torch.Tensor, call: str) -> torch.Tensor:
    """The values of a tensor, one after the other: its own memory, or a copy."""
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
    """Refuses a tensor whose storage has become too small for it: torch would write after it."""
    if tensor.numel() == 0:
        return
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    if (last + 1) * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise RuntimeError(
            f"halay: the memory of a result, a tensor of shape {tuple(tensor.shape)}, was given "
            "back before the call was done: keep it until wait() has returned"
        )


def put(values: torch.Tensor, place: torch.Tensor) -> None:
    """Copies values to a place, in which they may be already, or in part. No autograd."""
    check_memory(place)
    if values.data_ptr() == place.data_ptr():
        return
    if values.is_contiguous() and place.is_contiguous() and _tensors.overlap(values, place):
        values = values.clone()
    # Only in inference mode may a tensor be written that was made in it.
    with torch.inference_mode(place.is_inference()), torch.no_grad():
        place.copy_(values.view(place.shape))


class Target:
    """Where a result goes: the tensor's own memory, or a buffer that is copied to it at the end.

    read: the values that are there are input. apart: input that must not be overwritten.
    """

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        call: str,
        read: bool = False,
        apart: torch.Tensor | None = None,
    ) -> None:
        self.tensors = [writable(tensor, call) for tensor in tensors]
        one = self.tensors[0]
        same_type(self.tensors, call)
        self.direct = len(tensors) == 1 and one.is_contiguous()
        self.direct = self.direct and not (one.is_conj() or one.is_neg())
        if self.direct and apart is not None:
            self.direct = not _tensors.overlap(one, apart)
        if self.direct:
            self.buffer = one.detach()
        elif read:
            self.buffer = flat(self.tensors, call)
        else:
            self.buffer = one.new_empty(sum(t.numel() for t in self.tensors))

    def finish(self) -> None:
        if self.direct:
            return
        at = 0
        for tensor in self.tensors:
            put(self.buffer.narrow(0, at, tensor.numel()), tensor.detach())
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


def same(data: torch.Tensor, result: torch.Tensor, call: str) -> None:
    if data.dtype != result.dtype:
        raise TypeError(f"halay {call}: the input is {data.dtype}, the output {result.dtype}")


def apart(data: torch.Tensor, target: Target | None) -> torch.Tensor:
    """The input, or a copy of it where the result would overwrite it."""
    if target is None or not _tensors.overlap(data, target.buffer):
        return data
    return data.clone()
