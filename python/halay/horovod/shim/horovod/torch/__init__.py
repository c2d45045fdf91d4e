# SPDX-License-Identifier: Apache-2.0
"""halay.torch under Horovod's name."""

from ..common.exceptions import HorovodInternalError
from ..torch import elastic, mpi_ops
from ..torch.compression import Compression
from ..torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from ..torch.mpi_ops import *  # noqa: F403  (its __all__ is Horovod's list)
from ..torch.mpi_ops import __all__ as _operations
from ..torch.optimizer import DistributedOptimizer
from ..torch.sync_batch_norm import SyncBatchNorm

__all__ = [
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
