# SPDX-License-Identifier: Apache-2.0
"""What `compression=` takes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from .._compression import Cast, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class FP16Compressor(Cast):
    """Sends float16."""

    wire = jnp.float16

    @classmethod
    def is_long(cls, tensor: Any) -> bool:
        return bool(jnp.issubdtype(tensor.dtype, jnp.floating) and tensor.dtype.itemsize > 2)

    @classmethod
    def cast(cls, tensor: Any, dtype: Any) -> Any:
        return tensor.astype(dtype)


class BF16Compressor(FP16Compressor):
    """Sends bfloat16: the range of float32, with 8 bits of precision."""

    wire = jnp.bfloat16


class Compression:
    """As hvd.Compression.fp16."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
