# SPDX-License-Identifier: Apache-2.0
"""What test_interrupted.py runs, on two ranks: rank 0 waits while a handler of a signal makes
calls, and then while the handlers of two signals raise."""

import os
import signal
import threading
import time

import torch

import halay.torch as hvd

hvd.init()
agreed: list[float] = []
caught = "nothing"


def agrees(*_: object) -> None:
    agreed.append(hvd.allreduce(torch.ones(1), op=hvd.Sum, name="flag").item())


def ends(number: int, _: object) -> None:
    raise SystemExit(f"by signal {number}")


def both() -> None:
    """The first handler is left as the second signal comes: that is the worst time."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR2)


if hvd.rank() == 0:
    signal.signal(signal.SIGUSR1, agrees)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    total = hvd.allreduce(torch.full((4,), 1.0), op=hvd.Sum, name="x")
else:
    agrees()
    total = hvd.allreduce(torch.full((4,), 2.0), op=hvd.Sum, name="x")
print(f"rank {hvd.rank()}: {agreed} {total.tolist()}", flush=True)

if hvd.rank() == 0:
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, ends)
    threading.Timer(0.5, both).start()
    try:
        hvd.barrier()
    except SystemExit as said:
        caught = str(said)
    print(f"caught: {caught}", flush=True)
else:
    time.sleep(3)
os._exit(0)
