# SPDX-License-Identifier: Apache-2.0
"""halay.torch under Horovod's name."""

from horovod.common.exceptions import HorovodInternalError
from horovod.torch import elastic, mpi_ops
from horovod.torch.compression import Compression
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from horovod.torch.mpi_ops import *  # noqa: F403  (its __all__ is Horovod's list)
from horovod.torch.mpi_ops import __all__ as _operations
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.sync_batch_norm import SyncBatchNorm

__all__ = [  # noqa: PLE0604
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "mpi_ops",
    *_operations,
]


def _check_has_gpu() -> bool:
    return False
