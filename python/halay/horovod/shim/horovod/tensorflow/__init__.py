# SPDX-License-Identifier: Apache-2.0
"""halay.tensorflow under Horovod's name."""

from __future__ import annotations

import os
from typing import Any

from halay.horovod import surface as _surface

from ..common.exceptions import HorovodInternalError
from ..common.util import check_extension, gpu_available, split_list
from ..tensorflow import elastic, functions, mpi_ops, util
from ..tensorflow.compression import Compression
from ..tensorflow.mpi_ops import *  # noqa: F403  (its __all__ is Horovod's list)
from ..tensorflow.mpi_ops import __all__ as _operations
from ..tensorflow.mpi_ops import _allreduce as _allreduce
from ..tensorflow.mpi_ops import _grouped_allreduce as _grouped_allreduce
from ..tensorflow.mpi_ops import _grouped_reducescatter as _grouped_reducescatter
from ..tensorflow.mpi_ops import _reducescatter as _reducescatter
from ..tensorflow.mpi_ops import handle_average_backwards_compatibility
from ..tensorflow.util import _cache as _cache
from ..tensorflow.util import _executing_eagerly as _executing_eagerly
from ..tensorflow.util import _make_subgraph as _make_subgraph
from ..tensorflow.util import refs_to_vars, vars_to_refs

_members = _surface.fetch(
    "halay.tensorflow",
    [
        "BroadcastGlobalVariablesHook",
        "DistributedGradientTape",
        "DistributedOptimizer",
        "PartialDistributedGradientTape",
        "allgather_object",
        "allreduce",
        "broadcast_global_variables",
        "broadcast_object",
        "broadcast_object_fn",
        "broadcast_variables",
        "grouped_allreduce",
        "grouped_reducescatter",
        "reducescatter",
    ],
    "horovod.tensorflow",
)
globals().update(_members)

__all__ = [
    "Compression",
    "HorovodInternalError",
    "SyncBatchNormalization",  # noqa: F405
    "check_extension",
    "elastic",
    "functions",
    "gpu_available",
    "handle_average_backwards_compatibility",
    "mpi_ops",
    "refs_to_vars",
    "split_list",
    "util",
    "vars_to_refs",
    *_members,
    *_operations,
]

if os.environ.get("HOROVOD_ENABLE_XLA_OPS", "0").lower() in ("1", "true"):
    raise NotImplementedError(
        "HOROVOD_ENABLE_XLA_OPS: Halay's operations cannot be compiled by XLA; unset it, and use "
        "tf.function(jit_compile=False)"
    )


def __getattr__(name: str) -> Any:
    # A subclass of a class of Keras, which takes seconds to import.
    if name == "SyncBatchNormalization":
        from halay.tensorflow import SyncBatchNormalization

        return SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
