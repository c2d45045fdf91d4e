# SPDX-License-Identifier: Apache-2.0
"""One rank of halay.spark.run(), and the process that guards it: python -m halay.spark.child FD

The guard does nothing but wait, so that nothing which the rank does keeps it from ending the rank
and what the rank has started when the task that reads FD is gone. Standard input is held by that
task; it brings the orders, length first. To FD go the rank's kind of end, what it returned or
raised, and at last, of the guard, the status.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import select
import signal
import sys
import time
import traceback
from typing import Any

from .words import LENGTH, RAISED, RETURNED, STATUS, Failure, Orders

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
END_S = 5  # in which the kernel has ended what it is told to end


def _dumps(value: Any) -> bytes:
    from pyspark import cloudpickle

    return bytes(cloudpickle.dumps(value))


def _failure(error: BaseException) -> Failure:
    pickled = None
    if isinstance(error, Exception):
        with contextlib.suppress(Exception):
            pickled = _dumps(error)
            pickle.loads(pickled)
    summary = f"{type(error).__name__}: {error}"
    return Failure(pickled, summary, traceback.format_exc())


def _children() -> list[int]:
    """Of this process: what the rank has started and left is among them (a subreaper has it so)."""
    found, own = [], str(os.getpid())
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[1] == own:
                found.append(int(pid))
    return found


def _end_all() -> None:
    """What the rank has started and what that has started, in whatever group or session it is."""
    end_s = time.monotonic() + END_S
    while time.monotonic() < end_s:
        for pid in _children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _guard(rank: int, fd: int) -> int:
    watched = select.poll()
    watched.register(0, 0)  # it hangs up when the task is gone
    watched.register(os.pidfd_open(rank), select.POLLIN)
    watched.poll()
    with contextlib.suppress(OSError):
        os.killpg(rank, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1])
    _end_all()
    with contextlib.suppress(OSError):
        os.write(fd, STATUS.pack(status))
    return 0


def _read(count: int) -> bytes:
    parts = []
    while count > 0:
        part = os.read(0, count)
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _call(orders: Orders) -> Any:
    if orders.shim:  # the driver's `horovod` is Halay's: so is this process's
        from ..horovod import install

        install()
    from .. import _session, spark
    from .._core import Place

    spark.rank_gpus[:] = orders.gpus
    _session.stand(Place(orders.rank, orders.size, orders.address, orders.secret))
    function, args, kwargs = pickle.loads(orders.function)
    return function(*args, **kwargs)


def _rank(fd: int) -> int:
    orders = Orders(*pickle.loads(_read(LENGTH.unpack(_read(LENGTH.size))[0])))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.set_inheritable(fd, False)
    status, kind = 0, RETURNED
    try:
        said = _dumps(_call(orders))
    except BaseException as error:
        traceback.print_exc()
        said, status, kind = pickle.dumps(tuple(_failure(error))), 1, RAISED
    with os.fdopen(fd, "wb") as pipe:
        pipe.write(kind + said)
    return status


def main() -> int:
    """Runs the rank in a child process; returns the rank's exit status. The guard never returns."""
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)  # whatever the task's process ignores
    fd, guard = int(sys.argv[1]), os.getpid()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if pid != 0:
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # both do it: whoever is first
        os._exit(_guard(pid, fd))
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        return 1
    return _rank(fd)


if __name__ == "__main__":
    sys.exit(main())
