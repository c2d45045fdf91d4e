# SPDX-License-Identifier: Apache-2.0
"""Compression of what an allreduce sends: a shorter floating point type."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


class Compressor:
    """Two functions: compress(array) -> (array, context), decompress(array, context)."""

    @classmethod
    def compress(cls, array: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    @classmethod
    def decompress(cls, array: Any, ctx: Any) -> Any:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends the array as it is."""

    @classmethod
    def compress(cls, array: Any) -> tuple[Any, Any]:
        return array, None

    @classmethod
    def decompress(cls, array: Any, ctx: Any) -> Any:
        return array


class _Cast(Compressor):
    """Sends floating point arrays longer than two bytes an element in `wire`."""

    wire: Any

    @classmethod
    def compress(cls, array: Any) -> tuple[Any, Any]:
        if not jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.itemsize <= 2:
            return array, None
        return array.astype(cls.wire), array.dtype

    @classmethod
    def decompress(cls, array: Any, ctx: Any) -> Any:
        return array if ctx is None else array.astype(ctx)


class FP16Compressor(_Cast):
    """Sends float16."""

    wire = jnp.float16


class BF16Compressor(_Cast):
    """Sends bfloat16: the range of float32, with 8 bits of precision."""

    wire = jnp.bfloat16


class Compression:
    """What `compression=` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
