# SPDX-License-Identifier: Apache-2.0
"""Torch's types as Halay's, and where a tensor's bytes are."""

from __future__ import annotations

from typing import Any

import torch

from ._core import ffi, lib

TYPES: dict[torch.dtype, int] = {
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
        TYPES[getattr(torch, _name)] = getattr(lib, f"HALAY_{_name.upper()}")

# A valid address for a tensor without elements, whose own is zero.
_EMPTY = ffi.new("char[]", 16)


def address(tensor: torch.Tensor) -> Any:
    """Where its bytes begin, as void *. The tensor has to outlive its use."""
    return ffi.cast("void *", tensor.data_ptr()) if tensor.numel() > 0 else _EMPTY
