# SPDX-License-Identifier: Apache-2.0
"""Compression of what an allreduce sends."""

from halay.tensorflow.compression import Compression, Compressor, FP16Compressor, NoneCompressor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
