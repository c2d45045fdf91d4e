# SPDX-License-Identifier: Apache-2.0
"""Last words: an uncaught exception that is this rank's own is told to halayrun too.

The other ranks then fail because this one is lost, and print that after it; halayrun shows what was
told first at the very end.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from types import TracebackType

from ._job import job_value
from .errors import HalayError

KEY = "words"  # of HALAY_JOB
MOST_BYTES = 16000
TOLD = "[seen by rank "  # in the text of every error of Halay's: errors.py

_who: tuple[int, int, str] | None = None  # pid, rank, host


def _own(error: BaseException) -> bool:
    """Whether it does not come of an error that Halay has told this rank."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        if isinstance(one, HalayError):
            if not isinstance(one, ValueError):
                return False  # those that are ValueErrors are this rank's own arguments
        elif isinstance(one, RuntimeError) and TOLD in str(one):
            return False  # it has come through C++: a future, DDP's reducer
        seen.add(id(one))
        one = one.__cause__ or one.__context__
    return True


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if _who is None or _who[0] != os.getpid() or not isinstance(error, Exception):
        return
    if not _own(error):
        return
    text = "".join(traceback.format_exception(kind, error, trace)).encode(errors="replace")
    head = f"rank {_who[1]} (pid {_who[0]} on {_who[2]}):\n".encode()
    text = head + text.replace(b"\0", b"?")[-MOST_BYTES:] + b"\0"
    with contextlib.suppress(OSError):
        file = os.open(job_value(KEY) or "", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(file, text)
        finally:
            os.close(file)


def listen(rank: int, host: str) -> None:
    """From now on; whatever else hears of uncaught exceptions goes on hearing of them."""
    global _who
    if job_value(KEY) is None:
        return
    begun, _who = _who is not None, (os.getpid(), rank, host)
    if begun:
        return
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _tell(kind, error, trace)
        previous(kind, error, trace)

    sys.excepthook = hook
