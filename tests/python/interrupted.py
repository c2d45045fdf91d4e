# SPDX-License-Identifier: Apache-2.0
"""What test_interrupted.py runs, on three ranks, a call a time: interrupted.py FOLDER CALL...

Rank 0 is interrupted while it waits in the call, rank 1 waits as well, and rank 2 does not come
before both have told how it ended. Each rank prints a line of JSON for each call.
"""

import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from halay._job import job_value

FOLDER = Path(sys.argv[1])
RANK = int(job_value("slot") or -1)
WAITS = 60.0  # rank 2, for the others
ran: list[float] = []
sent: list[float] = []


def nothing() -> None:
    """What a handler of the program does besides."""


def torch_calls():
    import torch
    import torch.distributed as dist

    import halay.arrays as ha
    import halay.distributed  # noqa: F401  # the back end
    import halay.torch as hvd

    def one():
        return torch.ones(4)

    return nothing, {
        "hvd.allreduce": lambda: hvd.allreduce(one(), name="x"),
        "hvd.allreduce_": lambda: hvd.allreduce_(torch.ones(4, dtype=torch.int32)),
        "hvd.synchronize": lambda: hvd.synchronize(hvd.allgather_async(one(), name="x")),
        "hvd.barrier": hvd.barrier,
        "hvd.broadcast_object": lambda: hvd.broadcast_object([RANK], root_rank=2),
        "ha.allreduce": lambda: ha.allreduce(np.ones(4), np.empty(4)),
        "ha.barrier": ha.barrier,
        "dist.all_reduce": lambda: dist.all_reduce(one()),
        "dist.wait": lambda: dist.all_reduce(one(), async_op=True).wait(),
        "dist.barrier": dist.barrier,
        "dist.recv": lambda: dist.recv(one(), 2),
        "hvd.init": hvd.init,
    }


def tensorflow_calls():
    import lean  # noqa: F401
    import tensorflow as tf

    import halay.tensorflow as hvd

    variable = tf.Variable([1.0, 2.0])

    def gradient():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = variable * variable
        return tape.gradient(loss, variable)

    return lambda: tf.reduce_sum(tf.ones(4) * 2.0), {
        "tf.allreduce": lambda: hvd.allreduce(tf.ones(4), name="x"),
        "tf.grouped_allgather": lambda: hvd.grouped_allgather([tf.ones(4), tf.ones(2)]),
        "tf.broadcast_variables": lambda: hvd.broadcast_variables([variable], 2),
        "tf.gradient": gradient,
        "tf.join": hvd.join,
    }


def jax_calls():
    import jax
    import jax.numpy as jnp

    import halay.jax as hvd

    return lambda: jax.jit(jnp.sum)(jnp.ones(4) * 2.0).block_until_ready(), {
        "jax.allreduce": lambda: hvd.allreduce(jnp.ones(4), name="x"),
        "jax.grouped_allreduce": lambda: hvd.grouped_allreduce([jnp.ones(4), jnp.ones(2)]),
        "jax.broadcast_parameters": lambda: hvd.broadcast_parameters({"a": jnp.ones(4)}, 2),
    }


MADE = {"tf": tensorflow_calls, "jax": jax_calls}
SURFACES = {"tf": "halay.tensorflow", "jax": "halay.jax"}


def join(call: str) -> None:
    if call.startswith("dist."):
        importlib.import_module("torch.distributed").init_process_group(
            "halay", init_method="halay://"
        )
    elif call != "hvd.init":
        surface.init()


def leave(call: str) -> None:
    if call.startswith("dist."):
        importlib.import_module("torch.distributed").destroy_process_group()
    else:
        surface.shutdown()


def late(call: str) -> None:
    """Rank 2."""
    end = time.monotonic() + WAITS
    while not all((FOLDER / f"{call}.{rank}").exists() for rank in (0, 1)):
        if time.monotonic() > end:
            sys.exit("rank 2: the others wait for ever")
        time.sleep(0.02)


def interrupt() -> None:
    """A handler that returns, and while the call waits on one that raises."""
    for number in (signal.SIGUSR1, signal.SIGINT):
        sent.append(time.monotonic())
        os.kill(os.getpid(), number)
        time.sleep(0.6)


def handler(*_: object) -> None:
    ran.append(time.monotonic())
    work()


def waits(call: str) -> dict[str, object]:
    """Ranks 0 and 1."""
    if RANK == 0:
        threading.Timer(0.8, interrupt).start()
    try:
        CALLS[call]()
        how = "it ended well"
    except KeyboardInterrupt:
        how = "KeyboardInterrupt"
    except Exception as failure:  # each framework's own
        how = str(failure)
    return {"how": how, "at": time.monotonic()}


signal.signal(signal.SIGUSR1, handler)
kind = sys.argv[2].partition(".")[0]
work, CALLS = MADE.get(kind, torch_calls)()
surface = importlib.import_module(SURFACES.get(kind, "halay.torch"))
for call in sys.argv[2:]:
    join(call)
    sent.clear()
    ran.clear()
    said: dict[str, object] = {"call": call, "rank": RANK}
    if RANK == 2:
        late(call)
    else:
        said.update(waits(call), ran=[*ran], sent=[*sent])
        (FOLDER / f"{call}.{RANK}").touch()
        print(json.dumps(said), flush=True)
    if call != "hvd.init":
        leave(call)
os._exit(0)
