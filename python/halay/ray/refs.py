# SPDX-License-Identifier: Apache-2.0
"""What becomes of calls of actors."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

TEXT_MAX = 600  # of a cause
SHUT_DOWN = "RayExecutor: shutdown() was called meanwhile, and has ended this call"


def is_lost(error: BaseException) -> bool:
    """Whether the actor is. An error of what it ran may be one of Ray's too."""
    return isinstance(error, RayActorError) and not isinstance(error, RayTaskError)


def outcome(ref: Any) -> tuple[Any, Exception | None]:
    """What a call that has ended returned, or raised."""
    try:
        return ray.get(ref), None
    except Exception as error:
        return None, error


def line_of(error: BaseException) -> str:
    """In a line: of what the worker ran, what it raised; of Ray, what it says of the actor."""
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {error.cause}"[:TEXT_MAX]
    return " ".join(str(error).split())[:TEXT_MAX]
