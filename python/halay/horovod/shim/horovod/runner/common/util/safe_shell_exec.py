# SPDX-License-Identifier: Apache-2.0
"""A shell's command, whose processes end with it."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

__all__ = ["GRACEFUL_TERMINATION_TIME_S", "execute"]

GRACEFUL_TERMINATION_TIME_S = 5
_LOOK_S = 0.1


def _copy(source: IO[str], to: Any, name: str, index: object, timed: bool) -> None:
    for line in source:
        head = f"[{index}]<{name}>:" if index is not None else ""
        if head and timed:
            head = f"{datetime.datetime.now():%a %b %d %H:%M:%S %Y}{head}"
        to.write(head + line)
        to.flush()


def _end(process: subprocess.Popen[str]) -> None:
    """Of its whole group: asked first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACEFUL_TERMINATION_TIME_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def execute(
    command: str,
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
    index: object = None,
    events: Sequence[threading.Event] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Its status; 128 + the signal that ended it. What it prints is copied to stdout and stderr
    (text streams; this process's if None), each line with the index in front if there is one. Any
    of the events ends it."""
    process = subprocess.Popen(
        command, shell=True, env=None if env is None else dict(env), text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    streams = ((process.stdout, stdout or sys.stdout, "stdout"),
               (process.stderr, stderr or sys.stderr, "stderr"))  # fmt: skip
    threads = [
        threading.Thread(
            target=_copy, args=(*stream, index, prefix_output_with_timestamp), daemon=True
        )
        for stream in streams
    ]
    for thread in threads:
        thread.start()
    try:
        while True:
            try:
                process.wait(_LOOK_S if events else None)
                break
            except subprocess.TimeoutExpired:
                if any(event.is_set() for event in events or ()):
                    break
    finally:
        _end(process)  # its children, too
        for thread in threads:
            thread.join(GRACEFUL_TERMINATION_TIME_S)  # who has left the group may hold the pipe
    status = process.returncode
    return status if status >= 0 else 128 - status
