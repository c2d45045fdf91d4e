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

from .._basics import (
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from .._objects import allgather_object, broadcast_object
from .._process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from .._reductions import Adasum, Average, Max, Min, Product, Sum
from ..errors import HalayError, HorovodInternalError
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
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "HalayError",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "alltoall",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "global_process_set",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
