# SPDX-License-Identifier: Apache-2.0
"""One process of bench/elastic: a small training that says each step, in which world it made it, and when."""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch

STEPS, COMMIT, STEP_S = 10000, 10, 0.02
library, folder = sys.argv[1], Path(sys.argv[2])
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
lines = open(folder / f"steps.{os.getpid()}", "w", buffering=1)


def step(parallel, number, world, optimizer):
    """One of STEP_S seconds. world(): differs once the job has recovered."""
    began = time.monotonic()
    optimizer.zero_grad()
    parallel(torch.randn(8, 20)).square().mean().backward()
    optimizer.step()
    lines.write(f"{world()} {number} {time.monotonic()}\n")
    time.sleep(max(0, STEP_S - (time.monotonic() - began)))


def with_horovods_interface():
    if library == "halay":
        import halay.torch as hvd
    else:
        import horovod.torch as hvd
    hvd.init()
    shared = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state, met = hvd.elastic.TorchState(model, shared, step=0), [0]

    @hvd.elastic.run
    def train(state):
        met[0] += 1
        while state.step < STEPS:
            step(model, state.step, lambda: met[0], shared)
            state.step += 1
            if state.step % COMMIT == 0:
                state.commit()

    train(state)


def with_torchrun():
    """As its documentation has it: from the last checkpoint, when all are started anew."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    parallel, first, path = torch.nn.parallel.DistributedDataParallel(model), 0, folder / "checkpoint"
    if path.exists():
        found = torch.load(path)
        model.load_state_dict(found["model"])
        first = found["step"]
    for number in range(first, STEPS):
        step(parallel, number, lambda: os.environ["TORCHELASTIC_RESTART_COUNT"], optimizer)
        if number % COMMIT == COMMIT - 1 and dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "step": number + 1}, f"{path}.new")
            os.rename(f"{path}.new", path)


def with_torchft():
    import torchft

    if library == "torchft-halay":
        from halay.torchft import ProcessGroupHalay as Group
    else:
        from torchft import ProcessGroupGloo as Group
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def load(found):
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])

    manager = torchft.Manager(
        pg=Group(timedelta(seconds=30)), min_replica_size=2, load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=str(os.getpid()), store_addr="127.0.0.1", store_port=store.port, rank=0, world_size=1,
        timeout=timedelta(seconds=30))  # fmt: skip
    parallel, stepper = torchft.DistributedDataParallel(manager, model), torchft.Optimizer(manager, optimizer)
    while manager.current_step() < STEPS:
        step(parallel, manager.current_step(), manager.num_participants, stepper)


{"halay": with_horovods_interface, "horovod": with_horovods_interface, "torchrun": with_torchrun}.get(library, with_torchft)()
