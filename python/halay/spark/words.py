# SPDX-License-Identifier: Apache-2.0
"""What a task and the rank that it starts say to each other."""

from __future__ import annotations

import struct
from typing import NamedTuple

LENGTH = struct.Struct(">Q")
STATUS = struct.Struct(">i")  # negative: by that signal
RETURNED, RAISED = b"R", b"E"


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


class Failure(NamedTuple):
    """What a rank raised; error is None where it cannot be pickled, or is no Exception."""

    error: bytes | None
    summary: str
    traceback: str
