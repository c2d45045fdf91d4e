# SPDX-License-Identifier: Apache-2.0
"""Compression of what an allreduce sends: a shorter floating point type. Each framework's module
says how its tensors are looked at and cast."""

from __future__ import annotations

from typing import Any


class Compressor:
    """Two functions: compress(tensor) -> (tensor, context), decompress(tensor, context)."""

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends the tensor as it is."""

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tensor


class Cast(Compressor):
    """Sends floating point tensors longer than two bytes an element in `wire`."""

    wire: Any

    @classmethod
    def is_long(cls, tensor: Any) -> bool:
        """Whether it is floating point and longer than two bytes an element."""
        raise NotImplementedError

    @classmethod
    def cast(cls, tensor: Any, dtype: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        return (cls.cast(tensor, cls.wire), tensor.dtype) if cls.is_long(tensor) else (tensor, None)

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else cls.cast(tensor, ctx)
