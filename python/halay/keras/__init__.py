# SPDX-License-Identifier: Apache-2.0
"""Data-parallel Keras, with Horovod's names: ``import halay.keras as hvd``.

On the back ends TensorFlow, JAX and torch, as KERAS_BACKEND says; with TF_USE_LEGACY_KERAS=1 for
the older Keras, tf_keras.
"""

from .._basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
    timeline_span,
    transport,
)
from .._objects import allgather_object, barrier, broadcast_object
from .._process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from .._reductions import Adasum, Average, Sum
from ..errors import HalayError, HorovodInternalError, HostsUpdatedInterrupt, NotInitialized
from . import callbacks, elastic
from ._values import broadcast_variables
from .functions import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    load_model,
    reducescatter,
)
from .optimizer import (
    Compression,
    DistributedOptimizer,
    PartialDistributedOptimizer,
)

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HalayError",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "NotInitialized",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "timeline_span",
    "transport",
]
