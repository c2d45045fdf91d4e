# SPDX-License-Identifier: Apache-2.0
"""Horovod's interface for MXNet 1.9.1, on CPUs: ``import halay.mxnet as hvd`` (docs/mxnet.md).

MXNet is retired: this is for programs that exist.
"""

try:
    import mxnet as _mxnet
except Exception as cause:  # with NumPy 1.24 and newer an AttributeError
    raise ImportError(
        "halay.mxnet needs MXNet 1.9.1, which could not be imported "
        f"({type(cause).__name__}: {cause}): pip install mxnet==1.9.1 'numpy<1.24', in an "
        "environment of its own"
    ) from cause

from .._objects import allgather_object, broadcast_object
from .._surface import *  # noqa: F403
from .._surface import __all__ as _names
from .ops import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)
from .training import Compression, DistributedOptimizer, DistributedTrainer, broadcast_parameters

if not _mxnet.__version__.startswith("1."):
    raise ImportError(f"halay.mxnet is for MXNet 1.9.1; this is {_mxnet.__version__}")

__all__ = [
    *_names,
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "reducescatter",
]
