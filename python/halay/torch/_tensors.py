# SPDX-License-Identifier: Apache-2.0
"""Which tensors Halay takes, and where their bytes are. Only what has gaps is copied."""

from __future__ import annotations

from typing import Any

import torch

from .._core import ffi, lib

_TYPES: dict[torch.dtype, int] = {
    torch.int8: lib.HALAY_INT8,
    torch.uint8: lib.HALAY_UINT8,
    torch.int16: lib.HALAY_INT16,
    torch.int32: lib.HALAY_INT32,
    torch.int64: lib.HALAY_INT64,
    torch.bool: lib.HALAY_BOOL,
    torch.float16: lib.HALAY_FLOAT16,
    torch.bfloat16: lib.HALAY_BFLOAT16,
    torch.float32: lib.HALAY_FLOAT32,
    torch.float64: lib.HALAY_FLOAT64,
    torch.complex64: lib.HALAY_COMPLEX64,
    torch.complex128: lib.HALAY_COMPLEX128,
}
# These came with torch 2.3.
for _name in ("uint16", "uint32", "uint64"):
    if hasattr(torch, _name):
        _TYPES[getattr(torch, _name)] = getattr(lib, f"HALAY_{_name.upper()}")

# A valid address for a tensor without elements, whose own is zero.
_EMPTY = ffi.new("char[]", 16)


def describe(tensor: torch.Tensor, kind: str, name: object) -> str:
    label = f" {name!r}" if name is not None else ""
    return (
        f"{kind}{label}: tensor of shape {tuple(tensor.shape)}, {tensor.dtype}, "
        f"on device {tensor.device}"
    )


def type_of(tensor: object, kind: str, name: object) -> int:
    """The halay_type_t of a tensor that can be sent; else an error that says why."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{kind}: needs a torch.Tensor, not {type(tensor).__name__}")
    if tensor.layout != torch.strided:
        raise ValueError(
            f"{describe(tensor, kind, name)}: layout {tensor.layout} is not supported; "
            "use tensor.to_dense()"
        )
    if tensor.device.type != "cpu":
        raise ValueError(
            f"{describe(tensor, kind, name)}: only CPU memory is supported; use tensor.cpu()"
        )
    found = _TYPES.get(tensor.dtype)
    if found is None:
        raise TypeError(
            f"{describe(tensor, kind, name)}: this dtype is not supported; convert it, "
            "for example with tensor.float()"
        )
    return found


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in one piece: the tensor itself, or a copy if it has gaps or lazy signs."""
    if tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def refuse_overlap(tensor: torch.Tensor, kind: str, name: object) -> None:
    """Of a tensor that is to be written: each element needs memory of its own."""
    extents = zip(tensor.shape, tensor.stride())
    if any(step == 0 and extent > 1 for extent, step in extents):
        raise ValueError(
            f"{describe(tensor, kind, name)}: elements of it share memory (strides "
            f"{tuple(tensor.stride())}), so it cannot be written in place; use tensor.clone()"
        )


def address(tensor: torch.Tensor) -> Any:
    """Where its bytes begin, as void *. The tensor has to outlive its use."""
    return ffi.cast("void *", tensor.data_ptr()) if tensor.numel() > 0 else _EMPTY


def touched(tensor: torch.Tensor) -> None:
    """Tells autograd that the tensor was written to: a saved copy of it is stale now."""
    bump = getattr(torch.autograd.graph, "increment_version", None)  # since torch 2.1
    if bump is not None and not tensor.is_inference():
        bump(tensor)
