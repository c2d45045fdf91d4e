# SPDX-License-Identifier: Apache-2.0
"""Data-parallel Keras, with Horovod's names: ``import halay.keras as hvd``.

On the back ends TensorFlow, JAX and torch, as KERAS_BACKEND says; with TF_USE_LEGACY_KERAS=1 for
the older Keras, tf_keras.
"""

from .._objects import allgather_object, barrier, broadcast_object
from .._surface import *  # noqa: F403
from .._surface import __all__ as _names
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
    *_names,
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]
