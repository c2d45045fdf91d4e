# SPDX-License-Identifier: Apache-2.0
"""Model state and Python objects, from one rank to all or from all to all."""

from halay.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]
