# SPDX-License-Identifier: Apache-2.0
"""What `compression=` takes."""

from __future__ import annotations

from typing import Any

import torch

from .._compression import Cast, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class FP16Compressor(Cast):
    """Sends float16."""

    wire = torch.float16

    @classmethod
    def is_long(cls, tensor: Any) -> bool:
        return bool(tensor.dtype.is_floating_point and tensor.element_size() > 2)

    @classmethod
    def cast(cls, tensor: Any, dtype: Any) -> Any:
        return tensor.to(dtype)


class BF16Compressor(FP16Compressor):
    """Sends bfloat16: the range of float32, with 8 bits of precision."""

    wire = torch.bfloat16


class Compression:
    """As hvd.Compression.fp16."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
