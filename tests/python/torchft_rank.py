# SPDX-License-Identifier: Apache-2.0
"""One process of test_torchft.py: `torchft_rank.py groups|replica ...`."""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer

from halay import HalayError, HalayRevoked
from halay.torchft import ProcessGroupHalay

TIMEOUT = timedelta(seconds=int(os.environ["TIMEOUT_S"]))


def add(group, value, size):
    """The sum of the ranks' values, by the work and by its future."""
    tensor = torch.full((1000,), float(value), dtype=torch.float64)
    future = group.allreduce([tensor], dist.AllreduceOptions()).get_future()
    assert torch.equal(future.wait()[0], tensor)
    assert group.size() == size
    return tensor[0].item()


def meet_again_and_again(address, me, folder):
    """Ranks 0, 1, 2; the other way round; 1 and 2 when 0 is lost; each alone."""
    group = ProcessGroupHalay(TIMEOUT)
    for quorum, rank in enumerate((me, 2 - me)):
        group.configure(f"{address}/{quorum}", str(me), rank, 3)
        assert add(group, 10**rank, 3) == 111.0
        tensor = torch.full((3,), float(rank))
        group.broadcast([tensor], dist.BroadcastOptions()).wait()
        assert tensor.tolist() == [0.0] * 3
        add_in_two(group._pg, rank)
    if me == 0:
        os.kill(os.getpid(), 9)
    tensor, began = torch.ones(5), time.monotonic()
    try:
        group.allreduce([tensor], dist.AllreduceOptions()).get_future().wait()
    except Exception as error:  # what C++ makes of it
        assert "is lost" in str(error), error
    else:
        raise AssertionError("the call went well without rank 2")
    assert time.monotonic() - began < TIMEOUT.total_seconds() / 2
    group.configure(f"{address}/two", str(me), me - 1, 2)
    assert add(group, me, 2) == 3.0
    abort_a_call(group, me, Path(folder, "ended"))
    group.configure(f"{address}/{me}", str(me), 0, 1)
    assert add(group, 7, 1) == 7.0
    group.shutdown()


def add_in_two(group, rank):
    """In a sub-group, which is of the quorum's job, and made by its members."""
    two = group.new_group([0, 2], TIMEOUT) if rank != 1 else None
    if two is not None:
        assert two._job is group._job
        assert add(two, 10**rank, 2) == 101.0
        two.shutdown()
        assert not group._job.closed


def abort_a_call(group, me, ended):
    """Rank 2's, in which a thread waits."""
    if me == 2:
        work = group.allreduce([torch.ones(5)], dist.AllreduceOptions())
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(work.wait)
            time.sleep(0.2)
            group.abort()
            assert isinstance(waits.exception(), HalayRevoked), waits.exception()
        ended.touch()
    while not ended.exists():
        time.sleep(0.01)


def come_alone(address):
    """The other rank does not come."""
    group, began = ProcessGroupHalay(timedelta(seconds=2)), time.monotonic()
    for rank in (0, 1):
        try:
            group.configure(f"{address}/alone{rank}", "0", rank, 2)
        except (HalayError, dist.DistStoreError):
            assert time.monotonic() - began < TIMEOUT.total_seconds()
            continue
        raise AssertionError("it has met")


def train(name, done, log):
    """A replica group of one rank, as torchft's own example has it, until the file is there."""
    torch.manual_seed(int(name))  # others' parameters come from who has them
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupHalay(TIMEOUT),
        min_replica_size=1,
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=f"replica{name}",
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        timeout=TIMEOUT,
    )
    parallel, stepper = DistributedDataParallel(manager, model), Optimizer(manager, optimizer)
    with open(log, "w", buffering=1) as lines:
        while not Path(done).exists():
            stepper.zero_grad()
            parallel(torch.randn(8, 4)).square().sum().backward()
            stepper.step()
            total = [parameter.double().sum().item() for parameter in model.parameters()]
            said = [manager.current_step(), manager.num_participants(), total]
            lines.write(json.dumps(said) + "\n")
            time.sleep(0.02)
    manager.shutdown()


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "groups":
        meet_again_and_again(rest[0], int(rest[1]), rest[2])
    elif what == "alone":
        come_alone(rest[0])
    else:
        train(*rest)
