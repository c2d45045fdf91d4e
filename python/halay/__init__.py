# SPDX-License-Identifier: Apache-2.0
"""Halay: RDMA-first collectives and data-parallel training.

``import halay.torch as hvd`` is the surface for PyTorch; halay.arrays has collectives on arrays of
any library, halay.mem registers memory. This module needs no framework and does not load the C
library.
"""

import sys

# pip looks at this, a module file's PYTHONPATH does not. Read by Python 3.6, too.
if sys.version_info < (3, 9):  # noqa: UP036
    _used = f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]}"
    raise ImportError(f"Halay needs Python 3.9 or newer, and {_used}: start another one")

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
