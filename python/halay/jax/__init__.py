# SPDX-License-Identifier: Apache-2.0
"""Data-parallel JAX, with Horovod's names: ``import halay.jax as hvd``."""

from .._surface import *  # noqa: F403
from .._surface import __all__ as _names
from . import distributed
from .compression import Compression
from .ops import (
    allgather,
    allgather_object,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    broadcast_object,
    grouped_allreduce,
    reducescatter,
)
from .tree import DistributedOptimizer, allreduce_tree, broadcast_parameters

__all__ = [
    *_names,
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_tree",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_parameters",
    "distributed",
    "grouped_allreduce",
    "reducescatter",
]
