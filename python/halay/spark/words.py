# SPDX-License-Identifier: Apache-2.0
"""What a task and the rank that it starts say to each other."""

from __future__ import annotations

import struct
from typing import NamedTuple

from .._agents.words import RAISED, RETURNED, Failure

__all__ = ["LENGTH", "RAISED", "RETURNED", "STATUS", "Failure", "Orders"]

LENGTH = struct.Struct(">Q")
STATUS = struct.Struct(">i")  # negative: by that signal


class Orders(NamedTuple):
    """What a rank is told: who it is, where ranks meet, what it calls (pickled).

    gpus: of its task, by their places in CUDA_VISIBLE_DEVICES.
    """

    rank: int
    size: int
    address: str
    secret: str
    gpus: list[str]
    shim: bool
    function: bytes
