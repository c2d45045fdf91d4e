# SPDX-License-Identifier: Apache-2.0
"""Compression of what an allreduce sends: a shorter floating point type."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Compressor:
    """Two functions: compress(tensor) -> (tensor, context), decompress(tensor, context)."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends the tensor as it is."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


def _narrow(tensor: Any, wire: Any) -> tuple[Any, Any]:
    """As `wire` if it is floating point and longer than two bytes an element, and what it was."""
    if not tensor.dtype.is_floating or tensor.dtype.size <= 2:
        return tensor, None
    return tf.cast(tensor, wire), tensor.dtype


class FP16Compressor(Compressor):
    """Sends float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _narrow(tensor, tf.float16)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends bfloat16: the range of float32, with 8 bits of precision."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return _narrow(tensor, tf.bfloat16)

    decompress = FP16Compressor.decompress


class Compression:
    """What `compression=` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
