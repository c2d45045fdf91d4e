# SPDX-License-Identifier: Apache-2.0
"""Halay: RDMA-first collectives and data-parallel training.

``import halay.torch as hvd`` is the surface for PyTorch; halay.arrays has collectives on arrays of
any library, halay.mem registers memory. This module needs no framework and does not load the C
library.
"""

from ._version import __version__
from .errors import (
    DuplicateName,
    HalayBootError,
    HalayError,
    HalayForked,
    HalayMismatch,
    HalayPeerLost,
    HalayRevoked,
    HalayTimeout,
    NotInitialized,
)

__all__ = [
    "DuplicateName",
    "HalayBootError",
    "HalayError",
    "HalayForked",
    "HalayMismatch",
    "HalayPeerLost",
    "HalayRevoked",
    "HalayTimeout",
    "NotInitialized",
    "__version__",
]
