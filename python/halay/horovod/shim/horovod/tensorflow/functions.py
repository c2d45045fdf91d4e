# SPDX-License-Identifier: Apache-2.0
"""Variables and Python objects, from one rank to all or from all to all."""

from halay.tensorflow.functions import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]
