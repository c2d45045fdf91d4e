# SPDX-License-Identifier: Apache-2.0
"""Threads."""

from __future__ import annotations

import threading
from typing import Any, Callable

__all__ = ["in_thread"]


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts target(*args) in a thread. silent: what it raises is dropped."""
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, such as (argument,), not a {type(args).__name__}")

    def quiet(*given: Any) -> None:
        try:
            target(*given)
        except Exception:
            return

    thread = threading.Thread(target=quiet if silent else target, args=args, name=name)
    thread.daemon = daemon
    thread.start()
    return thread
