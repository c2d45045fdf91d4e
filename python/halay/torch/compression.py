# SPDX-License-Identifier: Apache-2.0
"""Compression of what an allreduce sends: a shorter floating point type."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """Two functions: compress(tensor) -> (tensor, context), decompress(tensor, context)."""

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        raise NotImplementedError

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends the tensor as it is."""

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _Cast(Compressor):
    """Sends floating point tensors longer than two bytes an element in `wire`."""

    wire: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if not tensor.dtype.is_floating_point or tensor.element_size() <= 2:
            return tensor, None
        return tensor.to(cls.wire), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_Cast):
    """Sends float16."""

    wire = torch.float16


class BF16Compressor(_Cast):
    """Sends bfloat16: the range of float32, with 8 bits of precision."""

    wire = torch.bfloat16


class Compression:
    """What `compression=` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
